package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// formatVersion is the version of the files. A segment of a newer version is left alone.
const formatVersion = 1

const (
	plainSuffix   = ".log"
	sealedSuffix  = ".log.gz"
	tempSuffix    = ".tmp"
	corruptSuffix = ".corrupt"
	sequenceWidth = 20
)

// segment is one file of the history. store.mu guards it.
type segment struct {
	first   uint64 // the first sequence number, which is the name of the file
	sealed  bool
	foreign bool // has a newer format, or cannot be read: it is left alone
	size    int64
	modTime time.Time // of the last record, or later

	index    blockIndex // of a plain segment
	lastSeq  uint64     // of a plain segment; 0 if it has no records
	logBytes int64      // of log records, before compression
	// times is the range of times of a sealed segment whose index was read, in milliseconds since the epoch.
	times *[2]int64
	// isRenamed is set while the sealer replaces the plain file: retention must not remove one of the two.
	isRenamed bool
}

// records returns the number of records of a plain segment, or more.
func (s *segment) records() int64 {
	if s.lastSeq < s.first {
		return 0
	}
	return int64(s.lastSeq - s.first + 1)
}

func (s *segment) name() string {
	if s.sealed {
		return segmentName(s.first) + sealedSuffix
	}
	return segmentName(s.first) + plainSuffix
}

func segmentName(first uint64) string { return fmt.Sprintf("%0*d", sequenceWidth, first) }

// parseName returns what the name of a file says, and false if it is not the name of a segment.
func parseName(name string) (first uint64, sealed, ok bool) {
	digits, sealed := strings.CutSuffix(name, sealedSuffix)
	if !sealed {
		if digits, ok = strings.CutSuffix(name, plainSuffix); !ok {
			return 0, false, false
		}
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, sealed, err == nil && len(digits) == sequenceWidth
}

// header is the first line of a segment. With its pods, a restarted agent continues their chains without older segments.
type header struct {
	Kind   string      `json:"kind"`
	Format int         `json:"format"`
	First  uint64      `json:"first"`
	Time   time.Time   `json:"time"`
	Run    string      `json:"run"`
	BootID string      `json:"bootID,omitempty"`
	Node   *headerPod  `json:"node,omitempty"`
	Pods   []headerPod `json:"pods,omitempty"`
}

// headerPod is the last known record of a pod or of the node.
type headerPod struct {
	PodRef
	Seq      uint64 `json:"last"`
	After    string `json:"after,omitempty"`
	Deleting bool   `json:"deleting,omitempty"`
	Gap      bool   `json:"gap,omitempty"`     // records were lost, perhaps of this pod
	Removed  bool   `json:"removed,omitempty"` // only with Gap: the record that says so may be lost
}

func (p headerPod) chainEnd() chainEnd { return chainEnd{seq: p.Seq, after: p.After, hasGap: p.Gap} }

const kindSegment = "segment"

func appendHeader(line []byte, h header) []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic("history: encode segment header: " + err.Error()) // it has no values that JSON cannot encode
	}
	return appendChecked(line, func(payload []byte) []byte { return append(payload, text...) })
}

// isHeader recognizes a header by its first member.
func isHeader(payload []byte) bool {
	return strings.HasPrefix(string(payload[:min(len(payload), 20)]), `{"kind":"segment"`)
}

func mergeKeys(a, b []uint32) []uint32 {
	merged := slices.Concat(a, b)
	slices.Sort(merged)
	return slices.Compact(merged)
}

// readAll reads the first size bytes.
func readAll(f io.ReaderAt, size int64) ([]byte, error) {
	content := make([]byte, size)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content[:n], nil
}
