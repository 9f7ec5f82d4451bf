package rule

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/heraldnode/herald/expression"
)

// templateFunctions are those of annotations. Those of text/template that format a text are replaced by ones with a bounded result.
var templateFunctions = template.FuncMap{
	"humanize":           humanizeWith(humanize),
	"humanize1024":       humanizeWith(humanize1024),
	"humanizePercentage": humanizeWith(func(n float64) string { return fmt.Sprintf("%.4g%%", n*100) }),
	"humanizeDuration":   humanizeWith(humanizeDuration),
	"print":              func(args ...any) string { return bounded(fmt.Sprint(args...)) },
	"println":            func(args ...any) string { return bounded(fmt.Sprintln(args...)) },
	"printf":             func(format string, args ...any) string { return bounded(fmt.Sprintf(format, args...)) },
	"html":               func(args ...any) string { return bounded(template.HTMLEscaper(args...)) },
	"js":                 func(args ...any) string { return bounded(template.JSEscaper(args...)) },
	"urlquery":           func(args ...any) string { return bounded(template.URLQueryEscaper(args...)) },
}

func bounded(text string) string { return text[:min(len(text), maxTemplate)] }

// humanizeWith returns a function for any number. What is not known stays so.
func humanizeWith(format func(float64) string) func(any) (string, error) {
	return func(value any) (string, error) {
		switch v := value.(type) {
		case float64:
			return format(v), nil
		case int64:
			return format(float64(v)), nil
		case int:
			return format(float64(v)), nil
		case string:
			if v == expression.UnknownFact {
				return v, nil
			}
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return "", fmt.Errorf("%q is not a number", v)
			}
			return format(n), nil
		default:
			return "", fmt.Errorf("%v is not a number", value)
		}
	}
}

// humanize returns a number with a metric prefix: 1.234k.
func humanize(n float64) string {
	return withPrefix(n, 1000, [...]string{"", "k", "M", "G", "T", "P", "E", "Z", "Y"}, "mµnpfazy")
}

// humanize1024 returns a number with a binary prefix: 64Mi.
func humanize1024(n float64) string {
	return withPrefix(n, 1024, [...]string{"", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"}, "")
}

func withPrefix(n, base float64, large [9]string, small string) string {
	if n == 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Sprintf("%.4g", n)
	}
	prefix := ""
	if math.Abs(n) >= 1 {
		exponent := 0
		for ; math.Abs(n) >= base && exponent < len(large)-1; exponent++ {
			n /= base
		}
		prefix = large[exponent]
	} else {
		for _, r := range small {
			if math.Abs(n) >= 1 {
				break
			}
			n *= base
			prefix = string(r)
		}
	}
	return fmt.Sprintf("%.4g%s", n, prefix)
}

// humanizeDuration returns seconds as a duration: 1h 1m 40s.
func humanizeDuration(seconds float64) string {
	switch {
	case math.IsNaN(seconds) || math.IsInf(seconds, 0) || math.Abs(seconds) > math.MaxInt32:
		return fmt.Sprintf("%.4gs", seconds)
	case math.Abs(seconds) < 1:
		return withPrefix(seconds, 1000, [9]string{}, "mµn") + "s"
	}
	sign := ""
	if seconds < 0 {
		sign, seconds = "-", -seconds
	}
	left := time.Duration(seconds) * time.Second
	var parts []string
	for _, unit := range [...]struct {
		name   string
		length time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := left / unit.length; n > 0 || len(parts) > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", n, unit.name))
			left -= n * unit.length
		}
	}
	return sign + strings.Join(parts, " ")
}
