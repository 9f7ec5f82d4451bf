package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// Log is the history of one node. All methods are safe for concurrent use, before, during and after Run. Those that record
// something never block and do no I/O.
type Log struct {
	config  Config
	metrics *metrics
	journal *journal
	store   *store
	changed broadcast
	seal    wakeup.Signal // set when a segment can be sealed

	writer   *writer // owned by Run
	hasKnown atomic.Bool
	oldest   atomic.Pointer[oldest] // as last asked for
	requests chan attachmentRequest
}

// Open opens the history in Config.Dir, or begins one. Damaged files are no error. If the directory cannot be used, the history
// is kept in memory, and the error is logged and counted. It returns ErrLocked if another process has opened the directory.
func Open(config Config) (*Log, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	var files fileSystem = newMemory()
	problem := ""
	if config.MaxDisk > 0 {
		dir, err := openDirectory(config.Dir)
		switch {
		case errors.Is(err, ErrLocked):
			return nil, fmt.Errorf("open history: %w", err)
		case err != nil:
			config.Logger.Error("Failed to open history, keeping it in memory", "dir", config.Dir, "err", err)
			config.MaxDisk, problem = -1, err.Error()
		default:
			files = dir
		}
	}
	l, err := open(config, files)
	if err == nil && problem != "" {
		l.store.setProblem(problem)
	}
	return l, err
}

func open(config Config, files fileSystem) (*Log, error) {
	m, err := newMetrics(config.Metrics)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	store, recovered, err := openStore(files, config.limits(), config.Logger, m)
	if err != nil {
		config.Logger.Error("Failed to read history, keeping a new one in memory", "dir", config.Dir, "err", err)
		m.writeErrors.Inc()
		config.MaxDisk = -1
		problem := err.Error()
		if store, recovered, err = openStore(newMemory(), config.limits(), config.Logger, m); err != nil {
			return nil, errors.Join(err, files.Close())
		}
		store.setProblem(problem)
	}
	l := &Log{
		config: config, metrics: m, journal: newJournal(), store: store, seal: wakeup.New(),
		requests: make(chan attachmentRequest, maxAttachmentRequests),
	}
	l.writer = newWriter(l, recovered)
	if err := l.registerGauges(config.Metrics); err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return l, nil
}

// newRunID returns an identifier for this run.
func newRunID() string {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// Accepted records a version of a pod's status. Call it for each version in order, with a lock held that keeps the order.
func (l *Log) Accepted(version Version) { l.journal.addVersion(version) }

// Acknowledged records that the API server has this version of the pod's status.
func (l *Log) Acknowledged(uid podid.UID, version uint64, at time.Time) {
	l.journal.addAck(ack{uid: uid, version: version, at: at})
}

// Stopping records why the agent is about to stop an instance of a container, in the words of plan.StopReason. containerID is the
// one of the pod status.
func (l *Log) Stopping(containerID, reason, message string) {
	l.journal.addStop(containerID, stop{reason: reason, message: message})
}

// NodeChanged records the changes between two versions of the Node object, if there are any. before is nil for the first one.
func (l *Log) NodeChanged(before, after *v1.Node) {
	l.journal.addNode(nodeChange{before: before, after: after, at: time.Now()})
}

// LeaseChanged records that the node's lease has expired because it could not be renewed for the reason in message, or that it
// was renewed again.
func (l *Log) LeaseChanged(isRenewed bool, message string) {
	change := transition.Change{Field: transition.FieldLease, From: "renewed", To: "expired", Message: message}
	if isRenewed {
		change.From, change.To = change.To, change.From
	}
	change.Message = transition.Truncate(message, transition.MaxMessage)
	l.journal.addNode(nodeChange{other: &change, at: time.Now()})
}

// LoadLevelChanged records that the level of the node's load changed. culprit is the resource with the given saturation; empty if
// none is saturated.
func (l *Log) LoadLevelChanged(before, after, culprit string, saturation float64) {
	change := transition.Change{Field: transition.FieldLoad, From: before, To: after, Reason: culprit}
	if culprit != "" {
		change.Message = strconv.FormatFloat(saturation, 'f', 2, 64)
	}
	l.journal.addNode(nodeChange{other: &change, at: time.Now()})
}

// KnownPods tells which pods the node has, when all sources are complete. Only the first call counts: pods that an earlier
// process recorded and that are not known were removed while no agent ran. known must not be modified afterwards.
func (l *Log) KnownPods(known map[types.UID]bool) {
	if l.hasKnown.CompareAndSwap(false, true) {
		l.journal.setKnown(known)
	}
}

const (
	// batchDelay is how long versions are collected before they are written together.
	batchDelay = 2 * time.Millisecond
	// sealRetry is the pause after an attempt to seal a segment failed.
	sealRetry = time.Minute
)

// Run writes the history until ctx ends. Then it writes what is pending and closes the files. It must be called at most once.
func (l *Log) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { l.runSealer(ctx) })
	for range attachmentWorkers {
		background.Go(func() { l.runAttachments(ctx) })
	}
	l.writer.start(time.Now())
	l.seal.Set() // what an earlier process left
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.journal.ready:
			select {
			case <-ctx.Done():
			case <-time.After(batchDelay):
			}
		}
		now := time.Now()
		timer.Reset(l.writer.step(now).Sub(now))
	}
	background.Wait()
	return l.writer.stop(time.Now())
}

// Close releases the directory. Run does so too; call Close if Run is never called.
func (l *Log) Close() error { return l.store.files.Close() }

// runSealer compresses full segments until ctx ends.
func (l *Log) runSealer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.seal:
		}
		for ctx.Err() == nil {
			sealed, err := l.store.sealNext()
			if err != nil {
				l.config.Logger.Error("Failed to compress history, will retry", "retryAfter", sealRetry, "err", err)
				select {
				case <-ctx.Done():
				case <-time.After(sealRetry):
				}
			}
			if !sealed && err == nil {
				break
			}
		}
	}
}

// broadcast wakes all who wait for a change.
type broadcast struct {
	mu      sync.Mutex // guards waiting
	waiting chan struct{}
}

// wait returns a channel that is closed at the next change.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

func (b *broadcast) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
