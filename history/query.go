package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"
)

// Query selects records. Zero fields do not limit.
type Query struct {
	// Namespace and Name select the records of the pods of that name, UID those of one pod. Namespace alone leaves out the pods of
	// other namespaces, and nothing else.
	Namespace, Name, UID string
	// Kinds defaults to all except KindAck, which is part of the others: see Record.SyncedMs.
	Kinds []Kind
	// Acks includes ack records if Kinds is empty.
	Acks bool
	// Since and Until limit the times of the records.
	Since, Until time.Time
	// Before is a cursor: only records with smaller sequence numbers are returned.
	Before uint64
	// Limit is the maximum number of records. Defaults to 200; at most 1000.
	Limit int
}

// Limits of Query.Limit.
const (
	DefaultLimit = 200
	MaxLimit     = 1000
)

// ackMargin is how many records after the cursor or the end of the time range are searched for acknowledgements.
const (
	ackMargin     = 2000
	ackTimeMargin = time.Minute
)

// Page is the result of a Query.
type Page struct {
	// Records are the newest first.
	Records []Record
	// Next is the cursor of the next page, or 0 if there are no more records.
	Next uint64
}

// Query returns the newest records that match. It reads files and may take milliseconds. What is damaged is left out and
// counted; an error means that files could not be read, and comes with what could be.
func (l *Log) Query(ctx context.Context, q Query) (Page, error) {
	limit := min(cmp.Or(q.Limit, DefaultLimit), MaxLimit)
	var page Page
	acks := ackIndex{}
	matcher := newMatcher(&q)
	search := scan{isBackward: true, since: q.Since, until: q.Until}
	search.key, search.hasKey = q.key()
	if q.Before != 0 {
		search.before = q.Before + ackMargin
	}
	if !q.Until.IsZero() {
		search.until = q.Until.Add(ackTimeMargin)
	}
	search.visit = func(h head, payload []byte) bool {
		if h.kind == KindAck {
			acks.add(payload, q.UID)
		}
		if q.Before != 0 && h.seq >= q.Before || !matcher.matches(&h) {
			return true
		}
		record, err := decodeRecord(payload)
		if err != nil {
			return true
		}
		if len(page.Records) == limit {
			page.Next = page.Records[limit-1].Seq
			return false
		}
		acks.join(&record)
		page.Records = append(page.Records, record)
		return true
	}
	err := l.store.read(ctx, &search)
	return page, err
}

// Follow yields the records after the sequence number that match, oldest first, and then new ones until ctx ends. Before,
// Limit and Until are ignored.
func (l *Log) Follow(ctx context.Context, q Query, after uint64) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		matcher := newMatcher(&q)
		for ctx.Err() == nil {
			changed := l.changed.wait()
			isEnded := false
			search := scan{after: after, since: q.Since, visit: func(h head, payload []byte) bool {
				after = max(after, h.seq)
				if matcher.matches(&h) {
					if record, err := decodeRecord(payload); err == nil {
						isEnded = !yield(record)
					}
				}
				return !isEnded && ctx.Err() == nil
			}}
			if search.key, search.hasKey = q.key(); search.hasKey {
				search.since = time.Time{}
			}
			if err := l.store.read(ctx, &search); err != nil && ctx.Err() == nil {
				l.config.Logger.Error("Failed to read history", "err", err)
			}
			if isEnded {
				return
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	}
}

// FirstSeq returns the sequence number from which on records are kept, or 0 if there are none.
func (l *Log) FirstSeq() uint64 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if len(l.store.segments) == 0 {
		return 0
	}
	return l.store.segments[0].first
}

// oldest is the time of the record with a sequence number.
type oldest struct {
	seq uint64
	at  time.Time
}

// Oldest returns the time of the oldest record that is kept, or zero if there is none. It reads a file after the oldest records were
// removed, which takes a millisecond, and remembers the answer.
func (l *Log) Oldest(ctx context.Context) time.Time {
	first := l.FirstSeq()
	if known := l.oldest.Load(); known != nil && known.seq == first {
		return known.at
	}
	var found oldest
	search := scan{visit: func(h head, _ []byte) bool {
		found = oldest{seq: first, at: h.time()}
		return false
	}}
	if err := l.store.read(ctx, &search); err != nil || found.at.IsZero() {
		return time.Time{}
	}
	l.oldest.Store(&found)
	return found.at
}

// Problem says why the history is kept in memory although it should be on disk. It is empty if nothing is wrong.
func (l *Log) Problem() string {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.store.problem
}

// Size returns the size of the files in bytes.
func (l *Log) Size() int64 { return l.store.diskBytes() }

// LastSeq returns the sequence number of the newest record, or 0 if there is none.
func (l *Log) LastSeq() uint64 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for i := len(l.store.segments) - 1; i >= 0; i-- {
		if segment := l.store.segments[i]; segment.lastSeq != 0 {
			return segment.lastSeq
		} else if i < len(l.store.segments)-1 {
			return l.store.segments[i+1].first - 1
		}
	}
	return 0
}

// key returns the hash by which the index finds the blocks of the query.
func (q *Query) key() (uint32, bool) {
	switch {
	case q.UID != "":
		return uidKey(q.UID), true
	case q.Name != "":
		return podKey(q.Namespace, q.Name), true
	default:
		return 0, false
	}
}

// matcher applies a query to the heads of records.
type matcher struct {
	query                *Query
	namespace, name, uid []byte
}

func newMatcher(q *Query) *matcher {
	return &matcher{query: q, namespace: []byte(q.Namespace), name: []byte(q.Name), uid: []byte(q.UID)}
}

func (m *matcher) matches(h *head) bool {
	q := m.query
	switch {
	case len(q.Kinds) == 0 && h.kind == KindAck && !q.Acks, len(q.Kinds) > 0 && !slices.Contains(q.Kinds, h.kind),
		q.UID != "" && !bytes.Equal(h.uid, m.uid), q.Name != "" && !bytes.Equal(h.name, m.name),
		q.Namespace != "" && !bytes.Equal(h.namespace, m.namespace) && (q.Name != "" || len(h.namespace) > 0),
		!q.Since.IsZero() && h.time().Before(q.Since), !q.Until.IsZero() && h.time().After(q.Until):
		return false
	default:
		return true
	}
}

// ackIndex has the acknowledgements of the newer records, by run and UID, in descending order of their records.
type ackIndex map[[2]string][]Ack

// add adds an ack record. If uid is set, others are left out.
func (x ackIndex) add(payload []byte, uid string) {
	if uid != "" && !bytes.Contains(payload, []byte(uid)) {
		return
	}
	var record struct {
		Run  string `json:"run"`
		Acks []Ack  `json:"acks"`
	}
	if json.Unmarshal(payload, &record) != nil {
		return
	}
	for _, ack := range record.Acks {
		if uid == "" || ack.UID == uid {
			key := [2]string{record.Run, ack.UID}
			x[key] = append(x[key], ack)
		}
	}
}

// join sets when the record's version was acknowledged: with the first acknowledgement of it or of a newer version.
func (x ackIndex) join(record *Record) {
	if record.Kind != KindPod || record.Version == 0 {
		return
	}
	best := Ack{}
	for _, ack := range slices.Backward(x[[2]string{record.Run, record.UID}]) {
		if ack.Version >= record.Version && (best.Version == 0 || ack.Version < best.Version) {
			best = ack
		}
		if best.Version == record.Version {
			break
		}
	}
	if best.Version != 0 {
		record.SyncedMs = new(max(0, best.UptimeMs-record.UptimeMs))
	}
}
