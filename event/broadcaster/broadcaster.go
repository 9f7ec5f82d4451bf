// Package broadcaster keeps the events of a node's pods: what an operator should see of them. They are told to the API server
// where there is one, and the newest are kept here, so that a node without a cluster has a history too.
package broadcaster

import (
	"context"
	"errors"
	"log/slog"
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
)

// API is what a Recorder asks of an API server. Errors are those of apimachinery's api/errors, possibly wrapped.
type API interface {
	// CreateEvent stores a new event and returns it as it is kept.
	CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error)
	// PatchEvent applies a strategic merge patch to an event that happened again.
	PatchEvent(ctx context.Context, namespace, name string, patch []byte) (*v1.Event, error)
}

// Config is what a Recorder needs. NodeName and Scheme are required.
type Config struct {
	NodeName string
	// Scheme knows the kinds of the objects that events are about.
	Scheme *runtime.Scheme
	// API is the API server. Nil: none, events are only kept.
	API API
	// Component is who reports. Default "herald".
	Component string
	// HistorySize is how many different events are kept. Default 1000.
	HistorySize int
	// QueueSize is how many events wait for an API server that does not answer; the oldest are given up. Default 1000.
	QueueSize int
	Logger    *slog.Logger
	Metrics   prometheus.Registerer
}

// Broadcaster takes events from any goroutine, before, during and after Run, and never blocks. Make one with New.
type Broadcaster struct {
	config  Config
	metrics *metrics
	more    chan struct{} // capacity 1: look again, something waits

	mu      sync.Mutex // guards all below
	kept    history
	waiting []*letter // for the API server, the next one first
	stamp   int64     // of the newest event: in nanoseconds, and never the same twice, so that names differ
}

// New makes a Recorder. Run it to have events told.
func New(config Config) (*Broadcaster, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Broadcaster{config: config, more: make(chan struct{}, 1), kept: history{limit: config.HistorySize}}
	r.metrics, err = newMetrics(config.Metrics)
	return r, err
}

func (c Config) withDefaults() (Config, error) {
	var err error
	if c.NodeName == "" {
		err = errors.Join(err, errors.New("broadcaster.Config: NodeName is required"))
	}
	if c.Scheme == nil {
		err = errors.Join(err, errors.New("broadcaster.Config: Scheme is required"))
	}
	if c.HistorySize < 0 || c.QueueSize < 0 {
		err = errors.Join(err, errors.New("broadcaster.Config: HistorySize and QueueSize must not be negative"))
	}
	if c.Component == "" {
		c.Component = "herald"
	}
	if c.HistorySize == 0 {
		c.HistorySize = 1000
	}
	if c.QueueSize == 0 {
		c.QueueSize = 1000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

// Event records that something happened to the object, which may also be a *v1.ObjectReference: to a container of a pod
// one points with its FieldPath.
func (r *Broadcaster) Event(object runtime.Object, eventType, reason, message string) {
	about, err := reference.GetReference(r.config.Scheme, object)
	if err != nil {
		r.config.Logger.Error("Event about nothing that has a name", "reason", reason, "message", message, "err", err)
		return
	}
	now := time.Now()
	event := r.newEvent(about, eventType, reason, message, now)
	r.mu.Lock()
	r.stamp = max(now.UnixNano(), r.stamp+1)
	event.Name = util.GenerateEventName(about.Name, r.stamp)
	r.kept.add(event)
	if r.config.API != nil {
		r.waitLocked(&letter{event: event})
	}
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *Broadcaster) waitLocked(l *letter) {
	if len(r.waiting) == r.config.QueueSize {
		r.waiting = r.waiting[1:]
		r.metrics.told("dropped")
	}
	r.waiting = append(r.waiting, l)
}

// maxMessage is how many bytes of a message are kept: they come from containers and runtimes too, and an object of the
// API server has room for millions.
const maxMessage = 4 << 10

// displayed is the message fit for a terminal: cut, and without what steers one.
func displayed(message string) string {
	message = message[:min(len(message), maxMessage)]
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(message, "\uFFFD"))
}

func (r *Broadcaster) newEvent(about *v1.ObjectReference, eventType, reason, message string, now time.Time) *v1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // events about nodes are kept there
	}
	at := metav1.NewTime(now)
	return &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject:      *about,
		Type:                eventType,
		Reason:              reason,
		Message:             displayed(message),
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
		Source:              v1.EventSource{Component: r.config.Component, Host: r.config.NodeName},
		ReportingController: r.config.Component,
		ReportingInstance:   r.config.NodeName,
	}
}

// Recent lists the events that are kept, the one that happened last at the end. They are the caller's.
func (r *Broadcaster) Recent() []v1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.list()
}
