package history

import (
	"encoding/json"
	"time"
)

// head is the part of a record that is needed to find it. The slices are those of the line.
type head struct {
	seq                  uint64
	timeText             []byte // in timeFormat, checked when it is needed
	kind                 Kind
	namespace, name, uid []byte
}

// time returns the time of the record.
func (h *head) time() time.Time {
	if at, ok := parseUTC(h.timeText); ok {
		return at
	}
	at, _ := time.Parse(time.RFC3339Nano, string(h.timeText)) // the zero time if there is none
	return at
}

// parseHead reads the first members of a record, which appendJSON writes in a fixed order, many times faster than encoding/json,
// which reads all others.
func parseHead(payload []byte) (head, bool) {
	p := headParser{rest: payload}
	var h head
	p.skip(`{"seq":`)
	h.seq = p.number()
	p.skip(`,"time":"`)
	h.timeText = p.text()
	p.skip(`,"uptimeMs":`)
	if len(p.rest) > 0 && p.rest[0] == '-' { // before the start, if a clock says so
		p.rest = p.rest[1:]
	}
	p.number()
	p.skip(`,"run":"`)
	p.text()
	p.skip(`,"kind":"`)
	h.kind = kindOf(p.text())
	h.namespace = p.optional(`,"namespace":"`)
	h.name = p.optional(`,"pod":"`)
	h.uid = p.optional(`,"uid":"`)
	if p.failed {
		return decodeHead(payload)
	}
	return h, true
}

// parseUTC parses a time as appendJSON writes it: timeFormat, in UTC.
func parseUTC(text []byte) (time.Time, bool) {
	const pattern = "0000-00-00T00:00:00.000Z"
	if len(text) != len(pattern) {
		return time.Time{}, false
	}
	for i := range text {
		isDigit := text[i] >= '0' && text[i] <= '9'
		if isDigit != (pattern[i] == '0') || !isDigit && text[i] != pattern[i] {
			return time.Time{}, false
		}
	}
	number := func(from, to int) (n int) {
		for _, c := range text[from:to] {
			n = 10*n + int(c-'0')
		}
		return n
	}
	return time.Date(number(0, 4), time.Month(number(5, 7)), number(8, 10), number(11, 13), number(14, 16), number(17, 19),
		number(20, 23)*int(time.Millisecond), time.UTC), true
}

func decodeHead(payload []byte) (head, bool) {
	var record struct {
		Seq  uint64 `json:"seq"`
		Time string `json:"time"`
		Kind Kind   `json:"kind"`
		PodRef
	}
	if json.Unmarshal(payload, &record) != nil || record.Seq == 0 {
		return head{}, false
	}
	return head{
		seq: record.Seq, timeText: []byte(record.Time), kind: record.Kind,
		namespace: []byte(record.Namespace), name: []byte(record.Name), uid: []byte(record.UID),
	}, true
}

// kindOf returns the kind without allocating.
func kindOf(text []byte) Kind {
	for _, kind := range [...]Kind{KindPod, KindAck, KindLog, KindEvent, KindNode, KindSource, KindAgent} {
		if string(text) == string(kind) {
			return kind
		}
	}
	return Kind(text)
}

// headParser consumes a line. After a mismatch, failed is set.
type headParser struct {
	rest   []byte
	failed bool
}

func (p *headParser) skip(prefix string) {
	if len(p.rest) < len(prefix) || string(p.rest[:len(prefix)]) != prefix {
		p.failed = true
		return
	}
	p.rest = p.rest[len(prefix):]
}

func (p *headParser) number() (n uint64) {
	i := 0
	for ; i < len(p.rest) && i < 20 && p.rest[i] >= '0' && p.rest[i] <= '9'; i++ {
		n = 10*n + uint64(p.rest[i]-'0')
	}
	p.failed = p.failed || i == 0
	p.rest = p.rest[i:]
	return n
}

// text returns the text before the next quote. Text with an escape is left to encoding/json.
func (p *headParser) text() []byte {
	for i, c := range p.rest { // the texts are too short for bytes.IndexByte
		switch c {
		case '"':
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text
		case '\\':
			p.failed = true
			return nil
		}
	}
	p.failed = true
	return nil
}

func (p *headParser) optional(prefix string) []byte {
	if len(p.rest) < len(prefix) || string(p.rest[:len(prefix)]) != prefix {
		return nil
	}
	p.skip(prefix)
	return p.text()
}

// podNames has the names of pods by UID, for ack records, which have only UIDs.
type podNames map[string]PodRef

// scan returns the index data of a line, and adds its pods.
func (n podNames) scan(payload []byte) lineKeys {
	if isHeader(payload) {
		var h header
		if json.Unmarshal(payload, &h) == nil {
			for _, pod := range h.Pods {
				n[pod.UID] = pod.PodRef
			}
		}
		return lineKeys{}
	}
	h, ok := parseHead(payload)
	if !ok {
		return lineKeys{}
	}
	line := lineKeys{seq: h.seq, time: h.time().UnixMilli()}
	if len(h.uid) > 0 {
		line.keys = []uint32{podKey(h.namespace, h.name), uidKey(h.uid)}
		if _, found := n[string(h.uid)]; !found {
			n[string(h.uid)] = PodRef{Namespace: string(h.namespace), Name: string(h.name), UID: string(h.uid)}
		}
	}
	if h.kind == KindAck {
		var record struct {
			Acks []Ack `json:"acks"`
		}
		_ = json.Unmarshal(payload, &record) // the checksum was right
		for _, ack := range record.Acks {
			line.keys = n.appendAck(line.keys, ack.UID)
		}
	}
	return line
}

func (n podNames) appendAck(keys []uint32, uid string) []uint32 {
	keys = append(keys, uidKey(uid))
	if pod, found := n[uid]; found {
		keys = append(keys, podKey(pod.Namespace, pod.Name))
	}
	return keys
}
