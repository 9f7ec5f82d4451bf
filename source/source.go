package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// Source provides pods.
type Source interface {
	// Name returns a constant name, unique among the sources of a Mux.
	Name() podid.Source
	// Run reports pods and problems to the sink until ctx is done. It returns earlier only if the source can never work.
	Run(ctx context.Context, sink Sink) error
}

// Sink receives the pods and problems of one source. Its methods never wait for the consumer. A source calls them from one
// goroutine at a time and must not change the pods afterwards.
type Sink interface {
	// Replace sets the complete set of pods. A source is not ready before its first call. The set may be empty.
	Replace(pods []*v1.Pod)
	// Apply changes the set: updated holds new and changed pods, deleted the UIDs of pods that no longer exist.
	Apply(updated []*v1.Pod, deleted []types.UID)
	// Report sets the current problems. Problems that are no longer listed are resolved.
	Report(problems []Problem)
}

// Decoder decodes a manifest into pods that are ready to run, all or nothing. manifest.Decode is a Decoder.
type Decoder func(data []byte, origin manifest.Origin) ([]*v1.Pod, error)

// Op is what happened to the pods of an Update.
type Op int

// Operations, in the order in which the batches of one step are delivered (CFG-35).
const (
	// OpRemove: the source no longer has the pods. They are passed as last known (CFG-39).
	OpRemove Op = iota + 1
	// OpAdd: pods with a new UID. An empty batch announces a first set without new pods (CFG-40).
	OpAdd
	// OpUpdate: the spec, labels or annotations changed (CFG-37).
	OpUpdate
	// OpDelete: like OpUpdate, for pods with a deletion timestamp. They must be terminated.
	OpDelete
	// OpReconcile: only the status or other metadata changed, such as the resourceVersion. The kubelet keeps the old metadata
	// (CFG-38). Herald delivers the new metadata, so that a writer knows how old its base is.
	OpReconcile
)

const opCount = int(OpReconcile)

// String returns the kubelet's name of the operation.
func (o Op) String() string {
	if o < OpRemove || o > OpReconcile {
		return fmt.Sprintf("Op(%d)", int(o))
	}
	return [...]string{"REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE"}[o-OpRemove]
}

// Update is a batch of pods of one source with the same operation.
type Update struct {
	Source podid.Source
	Op     Op
	Pods   []*v1.Pod

	ack func() // nil if no acknowledgement is awaited
}

// Ack acknowledges that the consumer has acted on the batch. A source is ready once all batches of its first set are
// acknowledged (CFG-41). Receiving a batch is not enough: another goroutine could find the source ready and its pods
// missing. If the consumer never calls Ack, the source never becomes ready.
func (u Update) Ack() {
	if u.ack != nil {
		u.ack()
	}
}

// Problem describes a fault in the input of a source.
type Problem struct {
	Source podid.Source
	// Location is a file, a URL without secrets, or the full name of a pod.
	Location string
	// Line and Field are the position in the manifest, 0 and "" if unknown.
	Line  int
	Field string
	// Message describes the fault and, if there is one, the remedy. It contains only printable characters.
	Message string
	// Unavailable reports that the source as a whole cannot be read or watched, rather than that its content is invalid.
	Unavailable bool
	// Pod is the pod that the problem concerns, if it is known to be one.
	Pod podid.FullName
	// LastGood is when the version was read whose pods are kept instead. Zero if there is none.
	LastGood time.Time
	// Since is when the problem was first reported with this text.
	Since time.Time
}

// String returns "<location>:<line>: <field>: <message>", without the parts that are unknown.
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

// withoutSince returns the problem without its time, for comparison.
func (p Problem) withoutSince() Problem {
	p.Since = time.Time{}
	return p
}

// decodeProblems converts the error of a Decoder, one problem for each error in it.
func decodeProblems(location string, err error) []Problem {
	var errs manifest.Errors
	if !errors.As(err, &errs) {
		return []Problem{{Location: location, Message: err.Error()}}
	}
	problems := make([]Problem, 0, len(errs))
	for _, e := range errs {
		message := manifest.Error{Err: e.Err} // without location, line and field
		problems = append(problems, Problem{Location: location, Line: e.Line, Field: e.Field, Message: message.Error()})
	}
	return problems
}
