package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
)

// machine drives a history through versions, crashes, power failures and disk errors, and checks the invariants.
type machine struct {
	t    *rapid.T
	tb   testing.TB
	disk *history.Disk
	node *node
	// isFailing is set while the disk fails: what does not reach it and does not fit into memory is dropped.
	isFailing bool
	hadOutage bool // then records may have a gap
}

func (m *machine) open() { m.node.restart(openOn(m.tb, m.disk, nil)) }

// accept gives a pod up to some hundred versions, which are folded beyond a burst.
func (m *machine) accept() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "pod")
	count := rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3, 3, 40, 40, 700}).Draw(m.t, "versions")
	for i := range count {
		phase := v1.PodRunning
		if i == count-1 && rapid.IntRange(0, 9).Draw(m.t, "ends") == 0 {
			phase = v1.PodFailed
		}
		state := rapid.SampledFrom([]v1.ContainerState{running(), waiting("CrashLoopBackOff"), failed(0, 3)}).Draw(m.t, "state")
		m.node.set(name, status(phase, state, int32(rand.IntN(1000))))
	}
	if m.isFailing {
		m.lose(func(v acceptedVersion) bool { return v.isWritten })
	}
}

func (m *machine) remove() {
	m.node.remove(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(m.t, "pod"))
}

// write lets the log write. What it wrote survives a crash, and what is older than a second a power failure.
func (m *machine) write() {
	m.node.step(time.Duration(rapid.SampledFrom([]int{1, 500, 1000, 11_000}).Draw(m.t, "ms")) * time.Millisecond)
}

// settle lets the log write everything, folds too, and sync it.
func (m *machine) settle() {
	if m.isFailing {
		return
	}
	m.node.step(11 * time.Second)
	m.node.step(2 * time.Minute) // also after an outage
	m.node.step(2 * time.Second)
	for name := range m.node.accepted {
		for i := range m.node.accepted[name] {
			m.node.accepted[name][i].isWritten, m.node.accepted[name][i].isSynced = true, true
		}
	}
	m.check()
}

func (m *machine) seal() {
	if err := m.node.log.SealAll(); err != nil && !m.isFailing {
		m.t.Fatal(err)
	}
}

// kill ends the process: what was written is still there.
func (m *machine) kill() {
	m.lose(func(v acceptedVersion) bool { return v.isWritten })
	m.setFailing(false)
	m.open()
}

// cutPower ends the process and takes what was not synced.
func (m *machine) cutPower() {
	m.disk.PowerFailure(func(n int) int { return rapid.IntRange(0, n-1).Draw(m.t, "survives") })
	m.lose(func(v acceptedVersion) bool { return v.isSynced })
	m.setFailing(false)
	m.open()
}

func (m *machine) stop() {
	if m.isFailing {
		return
	}
	if err := m.node.log.Stop(m.node.now); err != nil {
		m.t.Fatal(err)
	}
	for name := range m.node.accepted {
		for i := range m.node.accepted[name] {
			m.node.accepted[name][i].isWritten, m.node.accepted[name][i].isSynced = true, true
		}
	}
	m.open()
}

func (m *machine) lose(survives func(acceptedVersion) bool) {
	for name := range m.node.accepted {
		for i := range m.node.accepted[name] {
			if v := &m.node.accepted[name][i]; !survives(*v) {
				v.isLost = true // perhaps: it may have survived
			}
		}
	}
}

// failingOperations are the kinds of outages. Nil: everything fails.
var failingOperations = [][]string{
	nil, nil, {"write"}, {"sync"}, {"sync dir"}, {"remove"}, {"rename"}, {"truncate"}, {"open"}, {"write", "remove"}, {"sync", "remove"},
}

func (m *machine) setFailing(isFailing bool) {
	m.isFailing = isFailing
	m.disk.Fail = nil
	if isFailing {
		m.hadOutage = true
		m.lose(func(v acceptedVersion) bool { return v.isWritten })
		err := rapid.SampledFrom([]error{syscall.EIO, syscall.ENOSPC, syscall.EROFS}).Draw(m.t, "error")
		operations := rapid.SampledFrom(failingOperations).Draw(m.t, "operations")
		m.disk.Fail = func(op string) error {
			if operations != nil && !slices.Contains(operations, op) {
				return nil
			}
			return fmt.Errorf("%s: %w", op, err)
		}
	}
}

func (m *machine) check() {
	records := all(m.tb, m.node.log)
	m.checkOrder(records)
	m.checkVersions(records)
	m.checkSummaries(records)
	if size := m.disk.Size(); size > 1<<20+2*(1<<17) {
		m.t.Errorf("H4: the disk has %d bytes", size)
	}
}

// checkOrder checks H2 and H6: sequence numbers rise, and each record continues the previous one of its pod.
func (m *machine) checkOrder(records []history.Record) {
	last := map[string]history.Record{}
	versions := map[string]uint64{}
	var lastSeq uint64
	for _, record := range records {
		if record.Seq <= lastSeq {
			m.t.Errorf("H6: sequence number %d after %d", record.Seq, lastSeq)
		}
		lastSeq = record.Seq
		if record.Kind != history.KindPod {
			continue
		}
		previous, found := last[record.UID]
		isContinued := record.Prev == previous.Seq && record.Before == previous.After
		isRetained := record.Prev >= records[0].Seq
		if !isContinued && !record.Gap && (found || isRetained) {
			m.t.Errorf("H2: %+v does not continue %+v", record, previous)
		}
		if record.Gap && !m.hadOutage {
			m.t.Errorf("H1: unexpected gap before %+v", record)
		}
		key := record.Run + record.UID
		if record.Version != 0 && record.Version <= versions[key] {
			m.t.Errorf("H6: version %d of %s after %d", record.Version, record.UID, versions[key])
		}
		versions[key] = max(versions[key], record.Version)
		last[record.UID] = record
		for _, change := range record.Changes {
			if change.Field == "removed" {
				delete(last, record.UID)
			}
		}
	}
}

// checkVersions checks H1 and H3: each version that a crash did not take is in exactly one record.
func (m *machine) checkVersions(records []history.Record) {
	runs := map[string]int{} // by run identifier, in the order of their start records
	for _, record := range ofKind(records, history.KindAgent) {
		if record.Agent.Event == history.EventStarted {
			runs[record.Run] = len(runs) + 1
		}
	}
	type key struct {
		uid string
		run int
	}
	counted := map[key]int{}
	for _, record := range ofKind(records, history.KindPod) {
		counted[key{record.UID, runs[record.Run]}] += max(record.Count, min(1, int(record.Version)))
	}
	if len(runs) != m.node.run {
		return // a power failure took the start of a run: its records cannot be assigned
	}
	for name, accepted := range m.node.accepted {
		want, atMost := map[int]int{}, map[int]int{}
		for _, v := range accepted {
			atMost[v.run]++
			if !v.isLost {
				want[v.run]++
			}
		}
		for run := range atMost {
			if got := counted[key{name, run}]; got < want[run] || got > atMost[run] {
				m.t.Errorf("H1: run %d of pod %s: got %d versions, want %d to %d", run, name, got, want[run], atMost[run])
			}
		}
	}
}

// checkSummaries checks H7: the last records have the current summaries.
func (m *machine) checkSummaries(records []history.Record) {
	last := map[string]history.Record{}
	for _, record := range ofKind(records, history.KindPod) {
		last[record.UID] = record
	}
	for name, pod := range m.node.pods {
		if pod.version != 0 && last[name].After != pod.after {
			m.t.Errorf("H7: the last record of %s says %q, want %q", name, last[name].After, pod.after)
		}
	}
}

func TestH1_H2_H3_H4_H6_H7_StateMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: rt, tb: t, disk: history.NewDisk(), node: newNode()}
		m.open()
		rt.Repeat(map[string]func(*rapid.T){
			"accept":  func(*rapid.T) { m.accept() },
			"accept2": func(*rapid.T) { m.accept() },
			"write":   func(*rapid.T) { m.write() },
			"remove":  func(*rapid.T) { m.remove() },
			"settle":  func(*rapid.T) { m.settle() },
			"seal":    func(*rapid.T) { m.seal() },
			"kill":    func(*rapid.T) { m.kill() },
			"power":   func(*rapid.T) { m.cutPower() },
			"stop":    func(*rapid.T) { m.stop() },
			"disk":    func(*rapid.T) { m.setFailing(!m.isFailing) },
		})
		m.setFailing(false)
		m.settle()
	})
}
