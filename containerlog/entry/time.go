package entry

import (
	"bytes"
	"time"
)

// Time is the time of an entry. It is converted only when it is needed: most requests neither print times nor compare them.
type Time struct {
	text []byte
	at   time.Time // set if text is in an unusual form
}

// outputFormat has always nine digits.
const outputFormat = "2006-01-02T15:04:05.000000000Z07:00"

// parseTime accepts what time.Parse accepts for RFC 3339. The form that runtimes write is checked without a conversion.
func parseTime(text []byte) (Time, bool) {
	if isUsualTime(text) {
		return Time{text: text}, true
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	return Time{text: text, at: at}, err == nil
}

const (
	dateLength    = len("2006-01-02T15:04:05")
	maxTimeLength = len("2006-01-02T15:04:05.000000000-07:00")
	utcLength     = len("2006-01-02T15:04:05.000000000Z")
)

// isUsualTime reports whether the text is a valid time with at most nine digits of fraction.
func isUsualTime(text []byte) bool {
	if len(text) <= dateLength || len(text) > maxTimeLength {
		return false
	}
	if text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' {
		return false
	}
	month, day := number(text[5:7]), number(text[8:10])
	switch {
	case number(text[0:2]) < 0 || number(text[2:4]) < 0 || month < 1 || month > 12 || day < 1:
		return false
	case day > 28: // left to the calendar
		return false
	case !isBelow(text[11:13], 24) || !isBelow(text[14:16], 60) || !isBelow(text[17:19], 60):
		return false
	}
	zone := text[dateLength:]
	if zone[0] == '.' {
		digits := 1
		for digits < len(zone) && zone[digits] >= '0' && zone[digits] <= '9' {
			digits++
		}
		if digits == 1 || digits > 10 || digits == len(zone) {
			return false
		}
		zone = zone[digits:]
	}
	return isZone(zone)
}

func isZone(zone []byte) bool {
	if len(zone) == 1 {
		return zone[0] == 'Z'
	}
	return len(zone) == len("-07:00") && (zone[0] == '+' || zone[0] == '-') && zone[3] == ':' &&
		isBelow(zone[1:3], 24) && isBelow(zone[4:6], 60)
}

// number returns the value of two digits, or -1.
func number(text []byte) int {
	tens, ones := text[0]-'0', text[1]-'0'
	if tens > 9 || ones > 9 {
		return -1
	}
	return int(tens)*10 + int(ones)
}

func isBelow(text []byte, limit int) bool {
	value := number(text)
	return value >= 0 && value < limit
}

// At returns the time.
func (t Time) At() time.Time {
	if !t.at.IsZero() || t.text == nil {
		return t.at
	}
	at, _ := time.Parse(time.RFC3339Nano, string(t.text)) // valid, see parseTime
	return at
}

// appendTo appends the time with nine digits of fraction.
func (t Time) appendTo(output []byte) []byte {
	if t.at.IsZero() && len(t.text) == utcLength && bytes.HasSuffix(t.text, []byte("Z")) {
		return append(output, t.text...)
	}
	return t.At().AppendFormat(output, outputFormat)
}
