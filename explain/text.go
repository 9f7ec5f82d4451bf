package explain

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of texts in bytes. What others wrote, such as a registry's answer, is cut.
const (
	maxHeadline = 400
	maxText     = 600
	maxName     = 100
	maxQuote    = 240
	maxLines    = 10
)

// clean returns the text on one line, without surrounding space: control and other invisible characters are escaped, and what is
// beyond max bytes is cut. Messages of containers and registries end up in terminals and logs.
func clean(text string, limit int) string {
	text = strings.TrimSpace(text)
	if len(text) <= limit && isPrintable(text) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		part := text[i : i+size]
		switch {
		case r == utf8.RuneError && size == 1:
			part = `\x` + strconv.FormatUint(uint64(text[i]), 16)
		case !isVisible(r):
			part = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if out.Len()+len(part) > limit-len("...") {
			return out.String() + "..."
		}
		out.WriteString(part)
		i += size
	}
	return out.String()
}

func isPrintable(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return isVisibleText(text)
		}
	}
	return true
}

func isVisibleText(text string) bool {
	for i, r := range text {
		if !isVisible(r) || (r == utf8.RuneError && text[i] < utf8.RuneSelf) || (r == utf8.RuneError && !utf8.ValidString(text[i:])) {
			return false
		}
	}
	return true
}

// isVisible excludes control and format characters, such as those that change the direction of writing.
func isVisible(r rune) bool { return r == ' ' || unicode.IsPrint(r) }

// quote returns what somebody else wrote, in quotation marks.
func quote(text string) string { return `"` + clean(text, maxQuote) + `"` }

// age returns how long ago t was, or "" if it is unknown or in the future.
func age(now, t time.Time) string {
	if t.IsZero() || t.After(now) {
		return ""
	}
	return duration(now.Sub(t))
}

// duration prints a duration with the two largest units: 0.4s, 41s, 4m58s, 3h5m, 2d4h.
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 0 {
		d = 0
	}
	switch {
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + "s"
	case d < 59500*time.Millisecond:
		return units(d, time.Second, "s", 1, "")
	case d < time.Hour-500*time.Millisecond:
		return units(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d < day-30*time.Second:
		return units(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	default:
		return units(d.Round(time.Minute), day, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeUnit string, small time.Duration, smallUnit string) string {
	if smallUnit == "" {
		return strconv.FormatInt(int64(d.Round(large)/large), 10) + largeUnit
	}
	rest := d % large / small
	if rest == 0 {
		return strconv.FormatInt(int64(d/large), 10) + largeUnit
	}
	return strconv.FormatInt(int64(d/large), 10) + largeUnit + strconv.FormatInt(int64(rest), 10) + smallUnit
}

// clock prints a time in the location of now: the time of day, with the date if it is not today.
func clock(now, t time.Time) string {
	t = t.In(now.Location())
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format(time.TimeOnly)
	}
	if t.Year() == now.Year() {
		return t.Format("Jan 2 15:04:05")
	}
	return t.Format(time.DateTime)
}

// Text returns the verdict for a terminal:
//
//	! the headline
//	< a reason, with the rule that was applied
//	> the next automatic step, when, and who takes it
//	= what would change it
//	| a line of the container's log
//
// Times are printed in the location of now.
func (v Verdict) Text(now time.Time) string {
	var out strings.Builder
	line := func(mark, text string) {
		out.WriteString(mark)
		out.WriteByte(' ')
		out.WriteString(text)
		out.WriteByte('\n')
	}
	line("!", v.Headline)
	for _, because := range v.Chain {
		text := because.Text
		if because.Rule != "" {
			text += " [" + because.Rule + "]"
		}
		line("<", text)
	}
	if v.Next.What != "" {
		line(">", v.Next.text(now))
	}
	for _, change := range v.Changes {
		line("=", change)
	}
	for _, evidence := range v.Evidence {
		line("|", evidence.Text)
	}
	return out.String()
}

func (s Step) text(now time.Time) string {
	text := s.What
	if !s.At.IsZero() {
		text += " " + clock(now, s.At)
		if s.At.After(now) {
			text += " (in " + duration(s.At.Sub(now)) + ")"
		} else {
			text += " (now)"
		}
	}
	switch {
	case s.By == "" || s.By == ByNobody:
	case s.At.IsZero():
		text += ", by " + s.By.text()
	default:
		text += " by " + s.By.text()
	}
	if s.Then != "" {
		text += "; " + s.Then
	}
	return text
}

func (a Actor) text() string {
	if a == ByHerald {
		return string(a)
	}
	return "the " + string(a)
}

// Short returns the verdict without the pod's name, for a column of a table: "web exits 3 after 1.2s; next start in 4m58s".
func Short(v Verdict, now time.Time) string {
	text := v.Summary
	if text == "" {
		text = v.Headline
	}
	if v.OK && v.Code == CodeReady && age(now, v.Since) != "" {
		return text + " since " + age(now, v.Since)
	}
	if v.Next.At.After(now) {
		text += "; next " + v.Next.What + " in " + duration(v.Next.At.Sub(now))
	}
	return text
}
