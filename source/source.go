package source

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
)

// Source is one place that pods come from.
type Source interface {
	// Name is constant, and unique among the sources of a Mux.
	Name() podid.Source
	// Run tells the sink what the source sees until ctx ends. It returns earlier only when it can never work.
	Run(ctx context.Context, sink Sink) error
}

// Sink takes what a source sees. Its methods never wait for the consumer. One goroutine of the source calls them at a
// time; the pods must not be changed afterwards.
type Sink interface {
	// Replace tells the complete set. A source is not ready before its first one, which may be empty.
	Replace(pods []*v1.Pod)
	// Apply tells a change of the set: pods that are new or newer, and the UIDs of pods that are gone.
	Apply(changed []*v1.Pod, gone []types.UID)
	// Report tells all that is wrong now; what it no longer lists is over.
	Report(problems []Problem)
}

// Op says what happened to the pods of an Update.
type Op int

// The operations, in the order in which the batches of one step are delivered (CFG-35).
const (
	// OpRemove: the source no longer wants the pods. They carry what was last known of them (CFG-39).
	OpRemove Op = iota + 1
	// OpAdd: pods with a new UID. An empty batch tells that a source has spoken and wants nothing new (CFG-40).
	OpAdd
	// OpUpdate: what should run changed: spec, labels or annotations (CFG-37).
	OpUpdate
	// OpDelete: as OpUpdate, of pods that are being deleted gracefully: they must end and then be removed.
	OpDelete
	// OpReconcile: what should run is the same, but the object is newer: its status, or only its metadata, such as the
	// resourceVersion. The kubelet keeps the old metadata (CFG-38); here a consumer's copy is never older than ours, so
	// that a writer can tell how new its base is.
	OpReconcile
)

const opCount = int(OpReconcile)

func (o Op) String() string {
	if o < OpRemove || o > OpReconcile {
		return fmt.Sprintf("Op(%d)", int(o))
	}
	return [...]string{"REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE"}[o-OpRemove]
}

// Update is a batch of pods of one source to which the same happened.
type Update struct {
	Source podid.Source
	Op     Op
	Pods   []*v1.Pod

	taken func() // nil when nobody waits for it
}

// Ack tells that the consumer has acted on the batch. A source is ready only when the batches of its first set were
// taken (CFG-41): receiving one is not enough, since another goroutine could ask in between and find pods missing. A
// consumer that forgets to call it sees sources that never become ready, which is the harmless mistake.
func (u Update) Ack() {
	if u.taken != nil {
		u.taken()
	}
}

// Problem is one thing that is wrong with what a source reads.
type Problem struct {
	Source podid.Source
	// Location is a file, a URL without its secrets, or a pod's full name.
	Location string
	// Line and Field are where in the manifest, 0 and "" when that is unknown.
	Line  int
	Field string
	// Message says what is wrong and, where there is one, what to do about it. It holds printable text only.
	Message string
	// Since is when the problem was first seen in exactly these words.
	Since time.Time
}

// String is <location>:<line>: <field>: <message>, without the parts that are unknown.
func (p Problem) String() string {
	text := p.Message
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	switch {
	case p.Location == "":
		return text
	case p.Line == 0:
		return p.Location + ": " + text
	default:
		return fmt.Sprintf("%s:%d: %s", p.Location, p.Line, text)
	}
}
