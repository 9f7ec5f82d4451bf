package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// writer turns what is pending into records. It is owned by one goroutine.
type writer struct {
	log     *Log
	run     string
	started time.Time
	seq     uint64 // of the last record
	pods    map[podid.UID]*podState
	node    chainEnd

	batch   batch
	spare   pending
	dropped int64               // records that were dropped, until a record says so
	changes []transition.Change // reused

	acks     ackBuffer
	folds    map[podid.UID]*podState
	syncAt   time.Time // when the files are synced; zero if nothing is to be synced
	lastWall wallClock
	// recovered is what is recorded at the start.
	recovered recovered
}

// ackBuffer collects acknowledgements for one record.
type ackBuffer struct {
	acks []ack
	due  time.Time // when they are written; zero if there are none
}

// chainEnd is the last record of a pod or of the node.
type chainEnd struct {
	seq   uint64
	after string
}

// podState is what the writer knows about a pod.
type podState struct {
	PodRef
	chainEnd
	version  uint64 // the last one of this run; 0 if there was none yet
	deleting bool
	hasGap   bool // records were dropped, perhaps of this pod
	bucket   tokenBucket
	fold     *fold
	attached map[string]attached // by container
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
	// ackDelay is how long acknowledgements are collected for one record.
	ackDelay = time.Second
	// crashGap is how far the sequence skips after a crash, so that no number is used twice: readers may have seen records that
	// a power failure took.
	crashGap = 10_000
)

func newWriter(l *Log, r recovered) *writer {
	w := &writer{
		log: l, run: newRunID(), started: time.Now(), seq: r.lastSeq, recovered: r,
		pods: map[podid.UID]*podState{}, folds: map[podid.UID]*podState{},
		node: chainEnd{seq: r.node.Seq, after: r.node.After},
	}
	if !r.isClean {
		w.seq += crashGap
	}
	for uid, pod := range r.pods {
		w.pods[podid.UID(uid)] = &podState{
			PodRef: pod.PodRef, chainEnd: chainEnd{seq: pod.Seq, after: pod.After}, deleting: pod.Deleting, hasGap: pod.Gap,
			bucket: newTokenBucket(w.started),
		}
	}
	if !r.canContinue {
		w.begin(w.started)
	}
	return w
}

// begin starts a new segment. What could not be written to the old one is dropped, and the next record of each pod says so.
func (w *writer) begin(now time.Time) {
	if dropped := w.log.store.dropUnwritten(); dropped > 0 {
		w.dropped += dropped
		w.log.metrics.dropped.Add(float64(dropped))
		for _, state := range w.pods {
			state.hasGap = true
		}
	}
	h := header{Kind: kindSegment, Format: formatVersion, First: w.seq + 1, Time: now.UTC(), Run: w.run}
	if w.node.seq != 0 {
		h.Node = &headerPod{Seq: w.node.seq, After: w.node.after}
	}
	for _, state := range w.pods {
		if state.seq != 0 {
			h.Pods = append(h.Pods, headerPod{PodRef: state.PodRef, Seq: state.seq, After: state.after, Deleting: state.deleting, Gap: state.hasGap})
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
	w.addAgent(now, AgentEvent{Event: EventStarted, Version: w.log.config.AgentVersion, Unclean: !w.recovered.isClean})
	if w.recovered.torn > 0 {
		w.addAgent(now, AgentEvent{Event: EventTornTail, Count: w.recovered.torn})
	}
	if w.recovered.corrupt > 0 {
		w.addAgent(now, AgentEvent{Event: EventCorrupt, Count: w.recovered.corrupt})
	}
	w.log.store.retain(now)
	w.commit(now)
}

// step writes what is pending and returns when it must be called again, if nothing happens before.
func (w *writer) step(now time.Time) time.Time {
	w.batch.reset(now)
	w.checkClock(now)
	w.addDropped(now)
	taken := w.log.journal.take(w.spare)
	for i := range taken.versions {
		if len(w.batch.lines) >= maxBatch {
			w.commit(now)
			w.batch.reset(now)
		}
		w.addVersion(&taken.versions[i])
	}
	for _, change := range taken.nodes {
		w.addNode(change)
	}
	for _, result := range taken.attachments {
		w.addAttachment(result, now)
	}
	if len(taken.acks) > 0 && w.acks.due.IsZero() {
		w.acks.due = now.Add(ackDelay)
	}
	w.acks.acks = append(w.acks.acks, taken.acks...)
	w.reuse(taken)
	w.flushFolds(now)
	if !w.acks.due.IsZero() && !now.Before(w.acks.due) {
		w.addAcks(now)
	}
	w.commit(now)
	return w.deadline(now)
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
	w.addAcks(now)
	w.addDropped(now)
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
			w.rotate(now)
		}
	}
	if store.shouldRotate(now) {
		w.rotate(now)
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

// rotate begins a new segment and leaves the old one to the sealer.
func (w *writer) rotate(now time.Time) {
	store := w.log.store
	store.flushNow(now)
	store.sync(now)
	w.begin(now)
	store.flush(now)
	store.retain(now)
	w.log.seal.Set()
}

// deadline returns when the next step is due.
func (w *writer) deadline(now time.Time) time.Time {
	due := w.log.store.active.startedAt.Add(w.log.store.limits.segmentAge)
	if due.Before(now.Add(time.Minute)) { // an idle segment is not rotated
		due = now.Add(time.Minute)
	}
	for _, other := range []time.Time{w.syncAt, w.acks.due} {
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
	if record.UID != "" {
		w.batch.keys = append(w.batch.keys, podKey(record.Namespace, record.Name), uidKey(record.UID))
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
	w.log.metrics.records.WithLabelValues(string(record.Kind)).Inc()
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

// addDropped records that the disk failed for so long that records were dropped, and how the pods are now: the dropped records
// may have been their last ones.
func (w *writer) addDropped(now time.Time) {
	if w.dropped == 0 {
		return
	}
	w.addAgent(now, AgentEvent{Event: EventDropped, Count: w.dropped})
	w.dropped = 0
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		state := w.pods[uid]
		if !state.hasGap || state.seq == 0 {
			continue
		}
		if len(w.batch.lines) >= maxBatch {
			w.commit(now)
			w.batch.reset(now)
		}
		state.seq = w.add(now, &Record{Kind: KindPod, PodRef: state.PodRef, Transition: Transition{
			Prev: state.seq, Before: state.after, After: state.after, Gap: true, Cause: transition.CauseAgent,
		}})
		state.hasGap = false
	}
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
	changes := transition.AppendNode(w.changes[:0], change.before, change.after)
	w.changes = changes
	summary := transition.NodeSummary(change.after)
	if len(changes) == 0 || change.before == nil && summary == w.node.after && w.node.seq != 0 {
		return
	}
	w.addNodeRecord(change.at, summary, changes)
}

func (w *writer) addNodeRecord(at time.Time, after string, changes []transition.Change) {
	w.node.seq = w.add(at, &Record{Kind: KindNode, Transition: Transition{
		Prev: w.node.seq, Before: w.node.after, After: after, Cause: transition.CauseNode, Changes: changes,
	}})
	w.node.after = after
}

// addVersion records a version, or folds it if its pod changes too often.
func (w *writer) addVersion(v *Version) {
	state, found := w.pods[v.UID]
	if !found {
		state = &podState{bucket: newTokenBucket(v.Time)}
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
		delete(w.pods, v.UID)
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
	w.addNodeRecord(now, w.node.after, []transition.Change{{
		Field: transition.FieldClock, From: last.wall.UTC().Format(timeFormat), To: step.Round(time.Millisecond).String(),
	}})
}
