package expression

import (
	"fmt"
	"math"
	"time"
)

// units are those of Prometheus, in the order in which they may follow each other.
var units = [...]struct {
	name string
	unit time.Duration
}{
	{"y", 365 * day}, {"w", 7 * day}, {"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond},
}

// ParseDuration parses a duration in the syntax of Prometheus: 5m, 1h30m, 1d, 500ms, 0.
func ParseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	total, next := time.Duration(0), 0
	for rest := text; rest != "" || text == ""; {
		digits := 0
		number := int64(0)
		for ; digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' && digits < 18; digits++ {
			number = number*10 + int64(rest[digits]-'0')
		}
		length := 0
		for digits+length < len(rest) && rest[digits+length] >= 'a' && rest[digits+length] <= 'z' {
			length++
		}
		name := rest[digits : digits+length]
		for next < len(units) && units[next].name != name {
			next++
		}
		if digits == 0 || next == len(units) {
			return 0, fmt.Errorf("%q is not a duration; write one like 30s, 5m, 1h30m or 1d", text)
		}
		unit := units[next].unit
		if number > int64((math.MaxInt64-total)/unit) {
			return 0, fmt.Errorf("%q is too long for a duration", text)
		}
		total += time.Duration(number) * unit
		next++
		rest = rest[digits+length:]
	}
	return total, nil
}
