package history

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/heraldnode/herald/transition"
)

// timeFormat is RFC 3339 with milliseconds, in UTC.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// encoder appends the JSON of a record without allocating: it runs for every status version. encoding/json decodes it.
type encoder struct {
	buf []byte
	// comma is set after the first member of an object.
	comma bool
}

// appendJSON appends the record as encoding/json would encode it, up to escapes.
func appendJSON(buf []byte, r *Record) []byte {
	e := encoder{buf: append(buf, '{')}
	e.uint("seq", r.Seq)
	e.time("time", r.Time)
	e.int("uptimeMs", r.UptimeMs)
	e.string("run", r.Run)
	e.string("kind", string(r.Kind))
	e.optional("namespace", r.Namespace)
	e.optional("pod", r.Name)
	e.optional("uid", r.UID)
	e.transition(&r.Transition)
	if len(r.Acks) > 0 {
		e.acks(r.Acks)
	}
	if r.Attachment != nil {
		e.value("attachment", r.Attachment)
	}
	if r.Event != nil {
		e.value("event", r.Event)
	}
	if r.Source != nil {
		e.value("source", r.Source)
	}
	if r.Alert != nil {
		e.value("alert", r.Alert)
	}
	if r.Action != nil {
		e.value("action", r.Action)
	}
	if r.Agent != nil {
		e.value("agent", r.Agent)
	}
	return append(e.buf, '}')
}

func (e *encoder) transition(t *Transition) {
	e.optionalUint("prev", t.Prev)
	e.optionalUint("version", t.Version)
	e.optionalUint("firstVersion", t.FirstVersion)
	e.optionalUint("count", uint64(t.Count))
	if len(t.Counts) > 0 {
		e.counts(t.Counts)
	}
	e.optional("via", string(t.Via))
	e.optional("cause", string(t.Cause))
	e.optional("before", t.Before)
	e.optional("after", t.After)
	if t.Gap {
		e.key("gap")
		e.buf = append(e.buf, "true"...)
	}
	if len(t.Changes) > 0 {
		e.changes(t.Changes)
	}
}

func (e *encoder) changes(changes []transition.Change) {
	e.key("changes")
	e.buf = append(e.buf, '[')
	for i := range changes {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		change := &changes[i]
		e.open()
		e.optional("container", change.Container)
		e.string("field", string(change.Field))
		e.optional("from", change.From)
		e.optional("to", change.To)
		e.optional("reason", change.Reason)
		e.optional("message", change.Message)
		if change.Exit != nil {
			e.exit(change.Exit)
		}
		e.close()
	}
	e.buf = append(e.buf, ']')
}

func (e *encoder) exit(exit *transition.Exit) {
	e.key("exit")
	e.open()
	e.int("code", int64(exit.Code))
	if exit.Signal != 0 {
		e.int("signal", int64(exit.Signal))
	}
	if exit.RanMs != 0 {
		e.int("ranMs", exit.RanMs)
	}
	if exit.Attempt != 0 {
		e.int("attempt", int64(exit.Attempt))
	}
	e.optional("stoppedBy", exit.StoppedBy)
	e.close()
}

func (e *encoder) acks(acks []Ack) {
	e.key("acks")
	e.buf = append(e.buf, '[')
	for i := range acks {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.open()
		e.string("uid", acks[i].UID)
		e.uint("version", acks[i].Version)
		e.int("uptimeMs", acks[i].UptimeMs)
		e.close()
	}
	e.buf = append(e.buf, ']')
}

func (e *encoder) counts(counts map[string]int) {
	e.key("counts")
	e.open()
	for _, field := range slices.Sorted(maps.Keys(counts)) {
		if e.comma {
			e.buf = append(e.buf, ',')
		}
		e.comma = true
		e.buf = append(appendString(e.buf, field), ':')
		e.buf = strconv.AppendUint(e.buf, uint64(counts[field]), 10)
	}
	e.close()
}

// value adds a rare member with encoding/json.
func (e *encoder) value(key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("history: encode " + key + ": " + err.Error()) // the types have no values that JSON cannot encode
	}
	e.key(key)
	e.buf = append(e.buf, text...)
}

func (e *encoder) open() { e.buf, e.comma = append(e.buf, '{'), false }

func (e *encoder) close() { e.buf, e.comma = append(e.buf, '}'), true }

// key begins a member. The key must need no escapes.
func (e *encoder) key(key string) {
	if e.comma {
		e.buf = append(e.buf, ',')
	}
	e.comma = true
	e.buf = append(e.buf, '"')
	e.buf = append(e.buf, key...)
	e.buf = append(e.buf, '"', ':')
}

func (e *encoder) string(key, value string) {
	e.key(key)
	e.buf = appendString(e.buf, value)
}

func (e *encoder) optional(key, value string) {
	if value != "" {
		e.string(key, value)
	}
}

func (e *encoder) uint(key string, value uint64) {
	e.key(key)
	e.buf = strconv.AppendUint(e.buf, value, 10)
}

func (e *encoder) optionalUint(key string, value uint64) {
	if value != 0 {
		e.uint(key, value)
	}
}

func (e *encoder) int(key string, value int64) {
	e.key(key)
	e.buf = strconv.AppendInt(e.buf, value, 10)
}

func (e *encoder) time(key string, value time.Time) {
	e.key(key)
	e.buf = append(e.buf, '"')
	e.buf = appendTime(e.buf, value)
	e.buf = append(e.buf, '"')
}

// appendTime appends the time in timeFormat, several times faster than time.AppendFormat.
func appendTime(buf []byte, value time.Time) []byte {
	value = value.UTC()
	year, month, day := value.Date()
	if year < 0 || year > 9999 {
		return value.AppendFormat(buf, timeFormat)
	}
	hour, minute, second := value.Clock()
	buf = appendPadded(buf, year, 1000)
	buf = appendPadded(append(buf, '-'), int(month), 10)
	buf = appendPadded(append(buf, '-'), day, 10)
	buf = appendPadded(append(buf, 'T'), hour, 10)
	buf = appendPadded(append(buf, ':'), minute, 10)
	buf = appendPadded(append(buf, ':'), second, 10)
	buf = appendPadded(append(buf, '.'), value.Nanosecond()/int(time.Millisecond), 100)
	return append(buf, 'Z')
}

// appendPadded appends the decimal digits of n, the first one of which is worth first.
func appendPadded(buf []byte, n, first int) []byte {
	for ; first > 0; first /= 10 {
		buf = append(buf, byte('0'+n/first%10))
	}
	return buf
}

// isPlain has the bytes that stand for themselves in a JSON string, except those of characters beyond ASCII.
var isPlain = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// appendString appends a JSON string. Bytes that are not valid UTF-8 become U+FFFD.
func appendString(buf []byte, text string) []byte {
	const digits = "0123456789abcdef"
	buf = append(buf, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if isPlain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			buf = append(buf, text[start:i]...)
			switch c {
			case '"', '\\':
				buf = append(buf, '\\', c)
			case '\n':
				buf = append(buf, '\\', 'n')
			case '\t':
				buf = append(buf, '\\', 't')
			default:
				buf = append(buf, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			buf = append(buf, text[start:i]...)
			buf = append(buf, "\ufffd"...)
			start = i + size
		}
		i += size
	}
	return append(append(buf, text[start:]...), '"')
}
