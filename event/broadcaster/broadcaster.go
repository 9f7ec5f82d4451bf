// Package broadcaster records the events of a node's pods. It sends them to the API server, if there is one, and keeps the most
// recent in memory, so that a node without a cluster has a history too.
package broadcaster

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"

	"github.com/heraldnode/herald/internal/wakeup"
)

// API is the part of the Kubernetes API that a Broadcaster needs. Errors are those of apimachinery's api/errors, wrapped or not.
type API interface {
	// CreateEvent creates an event and returns the stored object.
	CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error)
	// PatchEvent applies a strategic merge patch to an event that occurred again.
	PatchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error)
}

// Journal keeps events for longer than Recent does.
type Journal interface {
	// EventOccurred is called for each occurrence. It must not block, and must not modify the event.
	EventOccurred(event *v1.Event)
}

// Config configures a Broadcaster. NodeName and Scheme are required.
type Config struct {
	// NodeName is the name of this node: the events' source host.
	NodeName string
	// Scheme contains the kinds of the objects that events refer to.
	Scheme *runtime.Scheme
	// API is the API server. Default: none; events are only kept in memory.
	API API
	// Journal is told about every occurrence of every event. Default: none.
	Journal Journal
	// Component is the source component of events. Defaults to "kubelet", which exporters, dashboards and tests filter by.
	Component string
	// ReportingController is the name of the agent. Defaults to "herald".
	ReportingController string
	// HistorySize is the number of distinct events that Recent returns. Default: 1000.
	HistorySize int
	// QueueSize is the number of events that wait for the API server; when it is exceeded, the oldest is dropped. Default: 1000.
	QueueSize int
	// Logger receives log messages. Default: slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers herald_events_total. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("broadcaster.Config: NodeName is required"))
	}
	if c.Scheme == nil {
		errs = append(errs, errors.New("broadcaster.Config: Scheme is required"))
	}
	if c.HistorySize < 0 {
		errs = append(errs, errors.New("broadcaster.Config: HistorySize must not be negative"))
	}
	if c.QueueSize < 0 {
		errs = append(errs, errors.New("broadcaster.Config: QueueSize must not be negative"))
	}
	c.Component = cmp.Or(c.Component, "kubelet")
	c.ReportingController = cmp.Or(c.ReportingController, "herald")
	c.HistorySize = cmp.Or(c.HistorySize, 1000)
	c.QueueSize = cmp.Or(c.QueueSize, 1000)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, errors.Join(errs...)
}

// Broadcaster implements event.Recorder. Event may be called from any goroutine, before, during and after Run, and never blocks.
// Use New to create one.
type Broadcaster struct {
	config Config
	total  *prometheus.CounterVec
	wake   wakeup.Signal // set when the queue grows

	mu        sync.Mutex // guards all below
	history   history
	watchers  map[wakeup.Signal]struct{}
	queue     []*pendingEvent // waits for the API server, oldest first
	timestamp int64           // of the newest event, in nanoseconds; strictly increasing, so that event names are unique
}

// Results of herald_events_total.
const (
	resultSent        = "sent"
	resultRateLimited = "rate_limited" // by client-go's spam filter
	resultRejected    = "rejected"
	resultDropped     = "dropped" // the queue was full
)

// New returns a Broadcaster and registers its metrics. Run sends its events.
func New(config Config) (*Broadcaster, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "herald_events_total",
		Help: "Number of events for the API server, by result: sent, rate_limited, rejected or dropped.",
	}, []string{"result"})
	if config.Metrics != nil {
		if err := config.Metrics.Register(total); err != nil {
			return nil, fmt.Errorf("broadcaster: register metrics: %w", err)
		}
	}
	return &Broadcaster{config: config, total: total, wake: wakeup.New(), history: history{limit: config.HistorySize}}, nil
}

// Event records an event about the object, which may be a *v1.ObjectReference: its FieldPath can refer to a container of a pod.
func (b *Broadcaster) Event(object runtime.Object, eventType, reason, message string) {
	b.record(object, nil, eventType, reason, message)
}

// AnnotatedEventf records an event with annotations, as client-go's recorder does.
func (b *Broadcaster) AnnotatedEventf( //nolint:revive // client-go has these arguments
	object runtime.Object, annotations map[string]string, eventType, reason, messageFormat string, args ...any,
) {
	b.record(object, annotations, eventType, reason, fmt.Sprintf(messageFormat, args...))
}

func (b *Broadcaster) record(object runtime.Object, annotations map[string]string, eventType, reason, message string) {
	ref, err := reference.GetReference(b.config.Scheme, object)
	if err != nil {
		b.config.Logger.Error("Failed to reference event object", "reason", reason, "message", message, "err", err)
		return
	}
	now := time.Now()
	event := b.newEvent(ref, eventType, reason, message, now)
	event.Annotations = maps.Clone(annotations)
	b.mu.Lock()
	b.timestamp = max(now.UnixNano(), b.timestamp+1)
	event.Name = util.GenerateEventName(ref.Name, b.timestamp)
	b.history.add(event)
	if b.config.API != nil {
		b.enqueueLocked(&pendingEvent{event: event})
	}
	for watcher := range b.watchers {
		watcher.Set()
	}
	b.mu.Unlock()
	b.wake.Set()
	if b.config.Journal != nil {
		b.config.Journal.EventOccurred(event)
	}
}

func (b *Broadcaster) newEvent(ref *v1.ObjectReference, eventType, reason, message string, now time.Time) *v1.Event {
	timestamp := metav1.NewTime(now)
	return &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(ref.Namespace, metav1.NamespaceDefault)}, // default: for nodes
		InvolvedObject:      *ref,
		Type:                eventType,
		Reason:              reason,
		Message:             sanitize(message),
		FirstTimestamp:      timestamp,
		LastTimestamp:       timestamp,
		Count:               1,
		Source:              v1.EventSource{Component: b.config.Component, Host: b.config.NodeName},
		ReportingController: b.config.ReportingController,
		ReportingInstance:   b.config.NodeName,
	}
}

// maxMessage limits the size of a message in bytes: messages also come from containers and runtimes, and the API server accepts
// objects of more than a megabyte.
const maxMessage = 4 << 10

// sanitize truncates the message and removes control characters that could change the state of a terminal.
func sanitize(message string) string {
	message = message[:min(len(message), maxMessage)]
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(message, "\uFFFD"))
}

func (b *Broadcaster) enqueueLocked(pending *pendingEvent) {
	if len(b.queue) == b.config.QueueSize {
		b.queue = b.queue[1:]
		b.count(resultDropped)
	}
	b.queue = append(b.queue, pending)
}

func (b *Broadcaster) count(result string) { b.total.WithLabelValues(result).Inc() }

// Recent returns copies of the most recent events, ordered by their last occurrence.
func (b *Broadcaster) Recent() []v1.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.history.after(0)
}

// Watch yields the recent events, ordered by their last occurrence, and then every event that occurs, until ctx ends. A slow
// reader gets only the last occurrence of each.
func (b *Broadcaster) Watch(ctx context.Context) iter.Seq[v1.Event] {
	return func(yield func(v1.Event) bool) {
		occurred := wakeup.New()
		b.mu.Lock()
		if b.watchers == nil {
			b.watchers = map[wakeup.Signal]struct{}{}
		}
		b.watchers[occurred] = struct{}{}
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.watchers, occurred)
		}()
		for last := int64(0); ; {
			b.mu.Lock()
			events := b.history.after(last)
			last = b.history.sequence
			b.mu.Unlock()
			for _, event := range events {
				if !yield(event) {
					return
				}
			}
			select {
			case <-occurred:
			case <-ctx.Done():
				return
			}
		}
	}
}

// history holds the most recent events. An event that occurs again increments a count, so that a crash loop does not evict all
// other events. The zero value with a limit is empty.
type history struct {
	limit  int
	events list.List // of *historyEntry, ordered by last occurrence
	byKey  map[historyKey]*list.Element
	// sequence is the number of occurrences so far.
	sequence int64
}

type historyEntry struct {
	event    *v1.Event
	sequence int64 // of the last occurrence
}

// historyKey identifies occurrences of the same event.
type historyKey struct {
	object                     v1.ObjectReference
	eventType, reason, message string
}

func historyKeyOf(event *v1.Event) historyKey {
	key := historyKey{object: event.InvolvedObject, eventType: event.Type, reason: event.Reason, message: event.Message}
	key.object.ResourceVersion = ""
	return key
}

func (h *history) add(event *v1.Event) {
	key := historyKeyOf(event)
	h.sequence++
	if element, found := h.byKey[key]; found {
		entry := element.Value.(*historyEntry)
		entry.event.Count++
		entry.event.LastTimestamp = event.LastTimestamp
		entry.sequence = h.sequence
		h.events.MoveToBack(element)
		return
	}
	if h.byKey == nil {
		h.byKey = map[historyKey]*list.Element{}
	}
	h.byKey[key] = h.events.PushBack(&historyEntry{event: event.DeepCopy(), sequence: h.sequence})
	if h.events.Len() > h.limit {
		oldest := h.events.Remove(h.events.Front()).(*historyEntry)
		delete(h.byKey, historyKeyOf(oldest.event))
	}
}

// after returns copies of the events that occurred after the one with the sequence number.
func (h *history) after(sequence int64) []v1.Event {
	first := h.events.Back()
	for first != nil && first.Prev() != nil && first.Prev().Value.(*historyEntry).sequence > sequence {
		first = first.Prev()
	}
	if first == nil || first.Value.(*historyEntry).sequence <= sequence {
		return []v1.Event{}
	}
	var events []v1.Event
	for element := first; element != nil; element = element.Next() {
		events = append(events, *element.Value.(*historyEntry).event.DeepCopy())
	}
	return events
}
