package history

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/heraldnode/herald/transition"
)

// Kind is the kind of a record.
type Kind string

// The kinds of records.
const (
	KindPod    Kind = "pod"    // a new version of a pod's status
	KindNode   Kind = "node"   // a change of the node
	KindAck    Kind = "ack"    // versions that the API server acknowledged
	KindLog    Kind = "log"    // the last lines and the circumstances of a container that failed
	KindEvent  Kind = "event"  // a Kubernetes event that the agent emitted
	KindSource Kind = "source" // a problem of a pod source appeared or was resolved
	KindAlert  Kind = "alert"  // an alert fired or was resolved
	KindAction Kind = "action" // an action of a rule was decided about, or ended
	KindAgent  Kind = "agent"  // the agent started, stopped, or lost something
)

// Record is one line of the history. Files and the local server have the same JSON. Fields are only
// added to it.
type Record struct {
	// Seq numbers the records of a node. It rises over restarts and is the only order; after a crash it skips some numbers.
	Seq uint64 `json:"seq"`
	// Time is the wall time in UTC, in milliseconds. It moves back when the clock is set back.
	Time time.Time `json:"time"`
	// UptimeMs is the time since the agent was started, by the monotonic clock.
	UptimeMs int64 `json:"uptimeMs"`
	// Run identifies a run of the agent. Status versions and uptimes of different runs cannot be compared.
	Run  string `json:"run"`
	Kind Kind   `json:"kind"`

	PodRef
	Transition

	// Acks has the versions of an ack record.
	Acks []Ack `json:"acks,omitempty"`
	// Attachment is the content of a log record.
	Attachment *Attachment `json:"attachment,omitempty"`
	// Event is the content of an event record.
	Event *Event `json:"event,omitempty"`
	// Source is the content of a source record.
	Source *SourceProblem `json:"source,omitempty"`
	// Alert is the content of an alert record.
	Alert *AlertChange `json:"alert,omitempty"`
	// Action is the content of an action record.
	Action *ActionRecord `json:"action,omitempty"`
	// Agent is the content of an agent record.
	Agent *AgentEvent `json:"agent,omitempty"`
	// SyncedMs is how long after the record the API server acknowledged the version or a newer one. It is not stored: Query
	// computes it from ack records.
	SyncedMs *int64 `json:"syncedMs,omitempty"`
}

// PodRef identifies the pod of a pod, log, event, alert or action record. The last two have no UID: a pod that is replaced continues its
// alerts.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Transition is the content of pod and node records.
type Transition struct {
	// Prev is the sequence number of the previous record of the pod or node: its After is the Before of this one. Zero if there
	// is none, or if it is not known any more.
	Prev uint64 `json:"prev,omitempty"`
	// Version is the version of the status, one counter for all pods of a run.
	Version uint64 `json:"version,omitempty"`
	// FirstVersion and Count are set in a folded record, which stands for Count versions of the pod from FirstVersion to Version.
	FirstVersion uint64 `json:"firstVersion,omitempty"`
	Count        int    `json:"count,omitempty"`
	// Counts says how often each field changed in a folded record, as container/field.
	Counts map[string]int `json:"counts,omitempty"`

	Via   transition.Via   `json:"via,omitempty"`
	Cause transition.Cause `json:"cause,omitempty"`
	// Before and After summarize the statuses; see transition.PodSummary.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Gap is set if versions before this one are missing.
	Gap     bool                `json:"gap,omitempty"`
	Changes []transition.Change `json:"changes,omitempty"`
}

// Ack says that the API server acknowledged a version of a pod's status, and with it all older ones.
type Ack struct {
	UID      string `json:"uid"`
	Version  uint64 `json:"version"`
	UptimeMs int64  `json:"uptimeMs"`
}

// Attachment is what is known about a container that failed.
type Attachment struct {
	// Of is the sequence number of the pod record that reported the failure.
	Of        uint64 `json:"of"`
	Container string `json:"container"`
	// Attempt is the restart count of the instance.
	Attempt int32 `json:"attempt"`
	// Lines are the last lines of the instance's log. LineCount is their number also if Lines were left out of a response.
	Lines     string `json:"lines,omitempty"`
	LineCount int    `json:"lineCount,omitempty"`
	// SameAs is the sequence number of an earlier log record of the container with the same lines, which are not repeated.
	SameAs uint64 `json:"sameAs,omitempty"`
	// Omitted says why there are no lines.
	Omitted string      `json:"omitted,omitempty"`
	Context ExitContext `json:"context"`
}

// ExitContext describes the circumstances of an exit.
type ExitContext struct {
	Code                     int32  `json:"code"`
	Reason                   string `json:"reason,omitempty"`
	Message                  string `json:"message,omitempty"`
	RanMs                    int64  `json:"ranMs,omitempty"`
	RestartCount             int32  `json:"restartCount"`
	StoppedBy                string `json:"stoppedBy,omitempty"`
	StopMessage              string `json:"stopMessage,omitempty"`
	Image                    string `json:"image,omitempty"`
	ImageID                  string `json:"imageID,omitempty"`
	MemoryLimitBytes         int64  `json:"memoryLimitBytes,omitempty"`
	NodeMemoryAvailableBytes int64  `json:"nodeMemoryAvailableBytes,omitempty"`
}

// AgentEvent is what happened to the agent or to its history.
type AgentEvent struct {
	// Event is one of the Event constants.
	Event   string `json:"event"`
	Version string `json:"version,omitempty"`
	// Unclean is set at a start if the previous run did not stop properly: what it accepted last may be missing.
	Unclean bool `json:"unclean,omitempty"`
	// BootID identifies the boot of the machine at a start.
	BootID string `json:"bootID,omitempty"`
	// Count is the number of lines, bytes or records that the event is about.
	Count int64 `json:"count,omitempty"`
}

// Events of the agent.
const (
	EventStarted = "started"
	EventStopped = "stopped"
	// EventTornTail: Count bytes at the end of a file were not completely written before a crash.
	EventTornTail = "tornTail"
	// EventCorrupt: Count damaged lines or blocks were found and skipped.
	EventCorrupt = "corrupt"
	// EventDropped: Count records were dropped because they could not be written for too long.
	EventDropped = "dropped"
	// EventUnsynced: Count records were written, but the disk failed to sync them: a power failure may take them.
	EventUnsynced = "unsynced"
)

// castagnoli is the polynomial of the checksums; processors have an instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const checksumSize = 8

// appendLine appends the record as a line: the checksum of the JSON in hexadecimal, a blank, the JSON, a newline.
func appendLine(line []byte, record *Record) []byte {
	return appendChecked(line, func(payload []byte) []byte { return appendJSON(payload, record) })
}

// appendChecked appends a line with the payload that add appends.
func appendChecked(line []byte, add func([]byte) []byte) []byte {
	start := len(line)
	line = append(line, "00000000 "...)
	line = add(line)
	sum := crc32.Checksum(line[start+checksumSize+1:], castagnoli)
	const digits = "0123456789abcdef"
	for i := range checksumSize {
		line[start+i] = digits[sum>>(28-4*i)&0xf]
	}
	return append(line, '\n')
}

// parseLine returns the JSON of a line without its newline, and false if the checksum does not match.
func parseLine(line []byte) (payload []byte, ok bool) {
	if len(line) < checksumSize+2 || line[checksumSize] != ' ' {
		return nil, false
	}
	var want uint32
	for _, c := range line[:checksumSize] {
		switch {
		case c >= '0' && c <= '9':
			want = want<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			want = want<<4 | uint32(c-'a'+10)
		default:
			return nil, false
		}
	}
	payload = line[checksumSize+1:]
	return payload, crc32.Checksum(payload, castagnoli) == want
}

func decodeRecord(payload []byte) (Record, error) {
	var record Record
	if err := json.Unmarshal(payload, &record); err != nil {
		return Record{}, fmt.Errorf("decode history record: %w", err)
	}
	record.Time = record.Time.UTC()
	return record, nil
}
