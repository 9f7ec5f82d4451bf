package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// writer turns what is pending into records. It is owned by one goroutine.
type writer struct {
	log *Log
	runClock
	seq  uint64 // of the last record
	pods map[podid.UID]*podState
	node chainEnd

	batch   batch
	spare   pending
	lost    lost                // until records say so
	changes []transition.Change // reused

	acks    ackBuffer
	folds   map[podid.UID]*podState
	sources tokenBucket
	eventBuffer
	unsynced
	// recovered is what is recorded at the start.
	recovered recovered
}

// runClock identifies the run of the agent and its times.
type runClock struct {
	run      string
	started  time.Time
	lastWall wallClock
}

// eventBuffer collects repeated events.
type eventBuffer struct {
	events map[eventObject]*objectEvents
	// eventsDue is when repeats of events are written; zero if there are none.
	eventsDue time.Time
}

// unsynced is what a power failure would lose.
type unsynced struct {
	removed []podid.UID // pods whose removal is not synced yet
	syncAt  time.Time   // when the files are synced; zero if nothing is to be synced
}

// ackBuffer collects acknowledgements for one record.
type ackBuffer struct {
	acks []ack
	due  time.Time // when they are written; zero if there are none
}

// chainEnd is the last record of a pod or of the node.
type chainEnd struct {
	seq    uint64
	after  string
	hasGap bool // records were lost, perhaps of this chain, and no record says so yet
}

// podState is what the writer knows about a pod.
type podState struct {
	PodRef
	chainEnd
	version  uint64 // the last one of this run; 0 if there was none yet
	deleting bool
	// isRemoved is set while the removal could still be lost. Forgetting the pod earlier would lose the gap too.
	isRemoved bool
	bucket    tokenBucket
	fold      *fold
	attached  map[string]attached // by container
}

// batch is a number of records that are written together.
type batch struct {
	now      time.Time
	lines    []byte
	index    []batchLine
	keys     []uint32
	logBytes int64
	// isUrgent is set if the batch must survive a power failure soon.
	isUrgent bool
}

// batchLine is the index data of one line. Its keys are a part of batch.keys, and it ends at end in batch.lines.
type batchLine struct {
	seq              uint64
	time             int64
	keysFrom, keysTo int
	end              int
}

const (
	// urgentSync is how soon records are synced that must not be lost.
	urgentSync = 50 * time.Millisecond
	// maxBatch bounds what is written at once, to less than the smallest segment.
	maxBatch = 32 << 10
	// idleStep is how often the clock and the age of the segment are checked.
	idleStep = time.Minute
	// ackDelay is how long acknowledgements are collected for one record.
	ackDelay = time.Second
	// crashGap is how far the sequence skips after a crash, so that no number is used twice: readers may have seen records that
	// a power failure took.
	crashGap = 10_000
)

func newWriter(l *Log, r recovered) *writer {
	w := &writer{
		log: l, runClock: runClock{run: newRunID(), started: time.Now()}, seq: r.lastSeq, recovered: r,
		pods: map[podid.UID]*podState{}, folds: map[podid.UID]*podState{},
		eventBuffer: eventBuffer{events: map[eventObject]*objectEvents{}}, node: r.node.chainEnd(),
	}
	w.sources = newTokenBucket(w.started)
	if !r.isClean {
		w.seq += crashGap
	}
	for uid, pod := range r.pods {
		w.pods[podid.UID(uid)] = &podState{
			PodRef: pod.PodRef, chainEnd: pod.chainEnd(), deleting: pod.Deleting, isRemoved: pod.Removed,
			bucket: newTokenBucket(w.started),
		}
	}
	if r.unsynced > 0 {
		w.lose(lost{unsynced: r.unsynced})
	}
	if !r.canContinue {
		w.begin(w.started)
	}
	return w
}

// begin starts a new segment. What could not be written to the old one is dropped, and the next record of each pod says so.
func (w *writer) begin(now time.Time) {
	if dropped := w.log.store.dropUnwritten(); dropped > 0 {
		w.log.metrics.dropped.Add(float64(dropped))
		w.lose(lost{dropped: dropped})
	}
	h := header{Kind: kindSegment, Format: formatVersion, First: w.seq + 1, Time: now.UTC(), Run: w.run, BootID: w.log.config.BootID}
	if w.node.seq != 0 {
		h.Node = &headerPod{Seq: w.node.seq, After: w.node.after, Gap: w.node.hasGap}
	}
	for _, state := range w.pods {
		if state.seq != 0 && (!state.isRemoved || state.hasGap) {
			h.Pods = append(h.Pods, headerPod{
				PodRef: state.PodRef, Seq: state.seq, After: state.after, Deleting: state.deleting, Gap: state.hasGap,
				Removed: state.isRemoved,
			})
		}
	}
	slices.SortFunc(h.Pods, func(a, b headerPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	w.log.store.begin(h.First, appendHeader(nil, h), now)
}

// start records the start of the agent, and what the history has lost.
func (w *writer) start(now time.Time) {
	w.batch.reset(now)
	w.lastWall = newWallClock(now)
	bootID := w.log.config.BootID
	w.addAgent(now, AgentEvent{
		Event: EventStarted, Version: w.log.config.AgentVersion, Unclean: !w.recovered.isClean, BootID: bootID,
	})
	if last := w.recovered.bootID; bootID != "" && last != "" && bootID != last {
		w.addOwnChange(now, transition.Change{Field: transition.FieldBootID, From: last, To: bootID})
	}
	if w.recovered.torn > 0 {
		w.addAgent(now, AgentEvent{Event: EventTornTail, Count: w.recovered.torn})
	}
	if w.recovered.corrupt > 0 {
		w.addAgent(now, AgentEvent{Event: EventCorrupt, Count: w.recovered.corrupt})
	}
	w.addLost(now)
	w.log.store.retain(now)
	w.commit(now)
}

// step writes what is pending and returns when it must be called again, if nothing happens before.
func (w *writer) step(now time.Time) time.Time {
	w.batch.reset(now)
	w.checkClock(now)
	w.addLost(now)
	taken := w.log.journal.take(w.spare)
	for i := range taken.versions {
		if len(w.batch.lines) >= maxBatch {
			w.commit(now)
			w.batch.reset(now)
		}
		w.addVersion(&taken.versions[i])
	}
	if taken.known != nil {
		w.removeUnknown(taken.known, now)
	}
	w.addOthers(&taken, now)
	if len(taken.acks) > 0 && w.acks.due.IsZero() {
		w.acks.due = now.Add(ackDelay)
	}
	w.acks.acks = append(w.acks.acks, taken.acks...)
	w.reuse(taken)
	w.flushFolds(now)
	w.flushEvents(now, false)
	if !w.acks.due.IsZero() && !now.Before(w.acks.due) {
		w.addAcks(now)
	}
	w.commit(now)
	return w.deadline(now)
}

// addOthers records what is not a version.
func (w *writer) addOthers(taken *pending, now time.Time) {
	for _, change := range taken.nodes {
		w.addNode(change)
	}
	for i := range taken.sources {
		w.addSource(&taken.sources[i])
	}
	for i := range taken.alerts {
		w.addAlert(&taken.alerts[i])
	}
	for i := range taken.actions {
		w.addAction(&taken.actions[i])
	}
	for i := range taken.events {
		w.addEvent(&taken.events[i])
	}
	for _, result := range taken.attachments {
		w.addAttachment(result, now)
	}
}

// reuse keeps the memory of the slices for the next batch, unless it is much.
func (w *writer) reuse(taken pending) {
	clear(taken.versions)
	if cap(taken.versions) > maxPending/4 {
		taken.versions = nil
	}
	w.spare = pending{versions: taken.versions, acks: taken.acks}
}

// stop writes everything that is left and closes the files.
func (w *writer) stop(now time.Time) error {
	w.step(now)
	w.batch.reset(now)
	for _, state := range w.folds {
		w.flushFold(state)
	}
	w.flushEvents(now, true)
	w.addAcks(now)
	w.addLost(now)
	w.addAgent(now, AgentEvent{Event: EventStopped, Version: w.log.config.AgentVersion})
	w.commit(now)
	return w.log.store.close(now)
}

// commit writes the batch, and syncs, rotates and retains as is due.
func (w *writer) commit(now time.Time) {
	store := w.log.store
	if len(w.batch.lines) > 0 {
		store.append(&w.batch)
	}
	store.flush(now)
	if len(w.batch.lines) > 0 {
		w.log.changed.signal()
	}
	w.scheduleSync(now)
	if !w.syncAt.IsZero() && !now.Before(w.syncAt) {
		w.syncAt = time.Time{}
		if !store.sync(now) {
			w.rotate(now, false)
		}
	}
	if store.shouldRotate(now) {
		w.rotate(now, true)
	}
	if len(w.removed) > 0 && !store.isDirty() {
		w.forgetRemoved()
	}
}

func (w *writer) scheduleSync(now time.Time) {
	if !w.log.store.isDirty() {
		return
	}
	due := now.Add(w.log.config.Sync)
	if w.batch.isUrgent {
		due = now.Add(min(urgentSync, w.log.config.Sync))
	}
	if w.syncAt.IsZero() || due.Before(w.syncAt) {
		w.syncAt = due
	}
}

// rotate begins a new segment and leaves the old one to the sealer. shouldSync is false after a sync failed: another one could
// succeed although the kernel dropped what it could not write.
func (w *writer) rotate(now time.Time, shouldSync bool) {
	store := w.log.store
	store.flushNow(now)
	if !shouldSync || !store.syncNow(now) {
		w.lose(lost{unsynced: store.active.unsynced})
	}
	w.begin(now)
	store.flush(now)
	store.retain(now)
	w.log.seal.Set()
}

// deadline returns when the next step is due.
func (w *writer) deadline(now time.Time) time.Time {
	due := now.Add(idleStep)
	for _, other := range []time.Time{w.syncAt, w.acks.due, w.eventsDue} {
		if !other.IsZero() && other.Before(due) {
			due = other
		}
	}
	for _, state := range w.folds {
		if flush := state.fold.started.Add(foldPeriod); flush.Before(due) {
			due = flush
		}
	}
	if retry := w.log.store.outage.retryAt; retry.After(now) && retry.Before(due) {
		due = retry
	}
	return due
}

// add appends a record to the batch and returns its sequence number.
func (w *writer) add(at time.Time, record *Record) uint64 {
	w.seq++
	record.Seq, record.Run = w.seq, w.run
	record.Time, record.UptimeMs = at.Round(0).Truncate(time.Millisecond).UTC(), at.Sub(w.started).Milliseconds()
	keysFrom, start := len(w.batch.keys), len(w.batch.lines)
	if record.Name != "" {
		w.batch.keys = append(w.batch.keys, podKey(record.Namespace, record.Name))
	}
	if record.UID != "" {
		w.batch.keys = append(w.batch.keys, uidKey(record.UID))
	}
	for i := range record.Acks {
		w.batch.keys = append(w.batch.keys, uidKey(record.Acks[i].UID))
		if state, found := w.pods[podid.UID(record.Acks[i].UID)]; found {
			w.batch.keys = append(w.batch.keys, podKey(state.Namespace, state.Name))
		}
	}
	w.batch.lines = appendLine(w.batch.lines, record)
	w.batch.index = append(w.batch.index, batchLine{
		seq: record.Seq, time: record.Time.UnixMilli(), keysFrom: keysFrom, keysTo: len(w.batch.keys), end: len(w.batch.lines),
	})
	if record.Kind == KindLog {
		w.batch.logBytes += int64(len(w.batch.lines) - start)
	}
	if record.Kind == KindPod {
		w.log.metrics.podRecords.Inc()
	} else {
		w.log.metrics.records.WithLabelValues(string(record.Kind)).Inc()
	}
	return record.Seq
}

func (b *batch) reset(now time.Time) {
	if cap(b.lines) > 4*blockSize {
		b.lines = nil
	}
	*b = batch{now: now, lines: b.lines[:0], index: b.index[:0], keys: b.keys[:0]}
}

func (w *writer) addAgent(now time.Time, event AgentEvent) {
	w.batch.isUrgent = true
	w.add(now, &Record{Kind: KindAgent, Agent: &event})
}

func (w *writer) addAcks(now time.Time) {
	const maxPerRecord = 500
	for chunk := range slices.Chunk(w.acks.acks, maxPerRecord) {
		record := Record{Kind: KindAck, Acks: make([]Ack, 0, len(chunk))}
		for _, ack := range chunk {
			record.Acks = append(record.Acks, Ack{
				UID: string(ack.uid), Version: ack.version, UptimeMs: ack.at.Sub(w.started).Milliseconds(),
			})
		}
		w.add(now, &record)
	}
	w.acks = ackBuffer{acks: w.acks.acks[:0]}
}

func (w *writer) addNode(change nodeChange) {
	if change.other != nil {
		w.addNodeRecord(change.at, w.node.after, []transition.Change{*change.other})
		return
	}
	changes := transition.AppendNode(w.changes[:0], change.before, change.after)
	w.changes = changes
	summary := transition.NodeSummary(change.after)
	if len(changes) == 0 || change.before == nil && summary == w.node.after && w.node.seq != 0 {
		return
	}
	w.addNodeRecord(change.at, summary, changes)
}

func (w *writer) addNodeRecord(at time.Time, after string, changes []transition.Change) {
	seq := w.add(at, &Record{Kind: KindNode, Transition: Transition{
		Prev: w.node.seq, Before: w.node.after, After: after, Cause: transition.CauseNode, Changes: changes, Gap: w.node.hasGap,
	}})
	w.node = chainEnd{seq: seq, after: after}
}

// addVersion records a version, or folds it if its pod changes too often.
func (w *writer) addVersion(v *Version) {
	state, found := w.pods[v.UID]
	if !found || state.isRemoved { // a pod that comes back begins another chain
		added := &podState{bucket: newTokenBucket(v.Time)}
		if found {
			added.hasGap = state.hasGap
		}
		state = added
		w.pods[v.UID] = state
	}
	state.PodRef = PodRef{Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: string(v.UID)}
	switch {
	case state.isEdge(v):
		w.flushFold(state)
		w.record(state, v, nil)
	case state.fold != nil:
		state.fold.add(v)
		w.log.metrics.folded.Inc()
	case state.bucket.take(v.Time):
		w.record(state, v, nil)
	default:
		state.fold = newFold(v)
		w.folds[v.UID] = state
		w.log.metrics.folded.Inc()
	}
}

// isEdge reports whether the version gets its own record whatever the rate: the first one, a request to delete the pod, its
// end, and its removal.
func (s *podState) isEdge(v *Version) bool {
	isEnd := derive.IsTerminal(v.After.Phase) && (v.Before == nil || !derive.IsTerminal(v.Before.Phase))
	return s.version == 0 || v.Removed || isEnd || v.Pod.DeletionTimestamp != nil && !s.deleting
}

// record writes the record of a version, which may stand for several. counts are those of a fold.
func (w *writer) record(state *podState, v *Version, counts map[string]int) {
	isResumed := state.version == 0 && state.seq != 0
	changes := w.changes[:0]
	if !v.Removed || v.versionCount() > 0 {
		changes = transition.AppendPod(changes, v.Before, v.After)
	}
	if v.Pod.DeletionTimestamp != nil && !state.deleting {
		state.deleting = true
		changes = append(changes, transition.Change{Field: transition.FieldDeletion, To: "requested"})
	}
	if v.Removed {
		changes = append(changes, transition.Change{Field: transition.FieldRemoved})
	}
	w.changes = changes
	stops := w.attributeStops(changes)
	record := Record{Kind: KindPod, PodRef: state.PodRef, Transition: Transition{
		Prev: state.seq, Before: state.after, After: transition.PodSummary(v.Pod, v.After), Via: v.Via, Changes: changes,
		Gap: v.Previous != state.version || state.hasGap,
		Cause: transition.PodCause(transition.PodFacts{
			Via: v.Via, Pod: v.Pod, After: v.After, Changes: changes, Resumed: isResumed,
		}),
	}}
	if count := v.versionCount(); count > 0 {
		record.Version = v.Version
		if count > 1 {
			record.FirstVersion, record.Count, record.Counts = v.firstVersion(), count, counts
		}
	}
	state.seq = w.add(v.Time, &record)
	state.after, state.version, state.hasGap = record.After, v.Version, false
	w.batch.isUrgent = w.batch.isUrgent || derive.IsTerminal(v.After.Phase)
	w.requestAttachments(state, v, changes, stops)
	if v.Removed {
		w.remove(v.UID, state)
	}
}

// attributeStops adds to the ends of containers why the agent stopped them. It returns the messages by change.
func (w *writer) attributeStops(changes []transition.Change) map[int]string {
	var messages map[int]string
	for i := range changes {
		exit := changes[i].Exit
		if exit == nil || exit.ContainerID == "" {
			continue
		}
		stopped := w.log.journal.takeStop(exit.ContainerID)
		exit.StoppedBy = stopped.reason
		if stopped.message != "" {
			if messages == nil {
				messages = map[int]string{}
			}
			messages[i] = stopped.message
			isRequested := stopped.reason == transition.StopUser || stopped.reason == transition.StopAction
			if isRequested && changes[i].Message == "" { // says who asked for it and why
				changes[i].Message = strings.ToValidUTF8(stopped.message[:min(len(stopped.message), transition.MaxMessage)], "")
			}
		}
	}
	return messages
}

// wallClock compares the wall clock with the monotonic clock.
type wallClock struct{ wall, monotonic time.Time }

func newWallClock(now time.Time) wallClock { return wallClock{wall: now.Round(0), monotonic: now} }

// clockTolerance is the least step of the clock that is recorded. Smaller corrections are normal.
const clockTolerance = time.Second

// checkClock records that the clock was set.
func (w *writer) checkClock(now time.Time) {
	last := w.lastWall
	w.lastWall = newWallClock(now)
	if last.monotonic.IsZero() {
		return
	}
	step := now.Round(0).Sub(last.wall) - now.Sub(last.monotonic)
	if step.Abs() < clockTolerance {
		return
	}
	w.addOwnChange(now, transition.Change{
		Field: transition.FieldClock, From: last.wall.UTC().Format(timeFormat), To: step.Round(time.Millisecond).String(),
	})
}

// addOwnChange records a change of the node that nobody else notices.
func (w *writer) addOwnChange(now time.Time, change transition.Change) {
	w.addNodeRecord(now, w.node.after, []transition.Change{change})
	w.log.config.OnNodeChange(change, now)
}
