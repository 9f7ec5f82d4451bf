// Package manager removes images that no container uses: those that were unused for too long, and the longest unused ones when the
// file system of images is too full. See package imagegc for the decisions.
package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/event"
	"github.com/heraldnode/herald/imagegc"
)

// Runtime has the images.
type Runtime interface {
	// Images returns all images and which of them are in use.
	Images(ctx context.Context) ([]imagegc.Image, error)
	// RemoveImage removes the image. It reports false without an error if a container is about to be created from it.
	RemoveImage(ctx context.Context, image imagegc.Image) (bool, error)
	// ImageFileSystem measures the file system of the images.
	ImageFileSystem(ctx context.Context) (imagegc.Usage, error)
	// PrunePullRecords removes the pull records of images that are gone.
	PrunePullRecords(ctx context.Context) error
}

// Config configures a Manager.
type Config struct {
	// NodeName is the name of the node that events are about. Required.
	NodeName string
	// Runtime is required.
	Runtime Runtime
	// Policy says when images are removed. Run does nothing if the policy is off. Required.
	Policy imagegc.Policy
	// State keeps the records of images over restarts. Default: none, a restart forgets which images were used.
	State *checkpoint.Dir

	// Interval is the time between two passes. Defaults to 5 minutes, as in the kubelet.
	Interval time.Duration
	// Events receives events about the node. Defaults to event.Discard.
	Events event.Recorder
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers kubelet_image_garbage_collected_total. Default: not registered.
	Metrics prometheus.Registerer
}

const (
	// startDelay leaves the runtime alone while the pods of the node start.
	startDelay = time.Minute
	// settleTime is how long the file system may take to show what a removal has freed.
	settleTime = time.Second
	// saveInterval is the time between two saves of the times at which images were last used.
	saveInterval = time.Hour

	checkpointVersion = 1
)

// Manager removes images. ReclaimImages may be called while Run runs.
type Manager struct {
	config  Config
	removed *prometheus.CounterVec
	store   *checkpoint.Store[imagegc.Records] // nil: none

	// sem has capacity 1 and is held during a pass: a channel instead of a mutex, because it is held across I/O. It guards what follows.
	sem       chan struct{}
	records   imagegc.Records
	savedAt   time.Time
	hasFailed bool // the last pass of Run failed
}

// New returns a Manager with the records of its predecessor.
func New(config Config) (*Manager, error) {
	var errs []error
	if config.NodeName == "" {
		errs = append(errs, errors.New("manager.Config: NodeName is required"))
	}
	if config.Runtime == nil {
		errs = append(errs, errors.New("manager.Config: Runtime is required"))
	}
	if err := config.Policy.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("manager.Config: Policy: %w", err))
	}
	if config.Interval < 0 {
		errs = append(errs, errors.New("manager.Config: Interval must not be negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	config.Interval = cmp.Or(config.Interval, 5*time.Minute)
	config.Events = cmp.Or(config.Events, event.Discard)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	m := &Manager{config: config, sem: make(chan struct{}, 1), removed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_image_garbage_collected_total", Help: "Number of images that were removed, by reason: age or space.",
	}, []string{"reason"})}
	if config.Metrics != nil {
		if err := config.Metrics.Register(m.removed); err != nil {
			return nil, err
		}
	}
	return m, m.load()
}

func (m *Manager) load() (err error) {
	if m.config.State == nil {
		return nil
	}
	if m.store, err = checkpoint.NewStore[imagegc.Records](m.config.State, "image-records", checkpointVersion); err != nil {
		return err
	}
	m.records, err = m.store.Load()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.config.Logger.Warn("Failed to load image records, all images count as new", "err", err)
	}
	return nil
}

// Run removes images until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if m.config.Policy.IsOff() {
		return nil
	}
	timer := time.NewTimer(min(startDelay, m.config.Interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			m.saveLast()
			return nil
		case <-timer.C:
			m.pass(ctx)
			timer.Reset(m.config.Interval)
		}
	}
}

// pass collects images and reports the second failure in a row (IGC-12).
func (m *Manager) pass(ctx context.Context) {
	err := m.collect(ctx)
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil && m.hasFailed:
		m.config.Logger.Error("Failed to collect images", "err", err)
		m.event(v1.EventTypeWarning, "ImageGCFailed", err.Error())
	case err != nil:
		m.config.Logger.Warn("Failed to collect images, will retry", "err", err)
	}
	m.hasFailed = err != nil
}

func (m *Manager) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case m.sem <- struct{}{}:
		return func() { <-m.sem }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// event records an event about the node. As in the kubelet, the UID is the node's name.
func (m *Manager) event(eventType, reason, message string) {
	reference := &v1.ObjectReference{Kind: "Node", Name: m.config.NodeName, UID: types.UID(m.config.NodeName)}
	m.config.Events.Event(reference, eventType, reason, message)
}

// observeLocked lists the images and updates their records.
func (m *Manager) observeLocked(ctx context.Context, now time.Time) ([]imagegc.Candidate, error) {
	images, err := m.config.Runtime.Images(ctx)
	if err != nil {
		return nil, err
	}
	var changed bool
	m.records, changed = m.records.Update(images, now)
	if changed || now.Sub(m.savedAt) >= saveInterval {
		m.saveLocked(now)
	}
	return m.records.Candidates(images), nil
}

func (m *Manager) saveLocked(now time.Time) {
	if m.store == nil {
		return
	}
	if err := m.store.Save(m.records); err != nil {
		m.config.Logger.Warn("Failed to save image records, a restart forgets which images were used", "err", err)
		return
	}
	m.savedAt = now
}

func (m *Manager) saveLast() {
	m.sem <- struct{}{}
	defer func() { <-m.sem }()
	if m.records != nil {
		m.saveLocked(time.Now())
	}
}
