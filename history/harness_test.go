package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/transition"
)

// node is a status manager in miniature: it produces versions of pods and remembers all of them.
type node struct {
	log  *history.Log
	now  time.Time
	pods map[string]*nodePod

	lastVersion uint64
	run         int
	// accepted are the versions by UID, in order.
	accepted map[string][]acceptedVersion
}

type nodePod struct {
	pod     *v1.Pod
	status  *v1.PodStatus
	version uint64
	after   string
}

// acceptedVersion is a version that the log was given. It is lost if a crash took it before it was written.
type acceptedVersion struct {
	run                         int
	version                     uint64
	after                       string
	isWritten, isSynced, isLost bool
}

func newNode() *node {
	return &node{now: time.Now(), pods: map[string]*nodePod{}, accepted: map[string][]acceptedVersion{}}
}

// restart continues on a log that was opened again. Pods keep their statuses: containers keep running.
func (n *node) restart(log *history.Log) {
	n.log, n.lastVersion, n.run = log, 0, n.run+1
	for _, pod := range n.pods {
		pod.version = 0
	}
	n.log.Start(n.now)
}

// status returns a status with one container.
func status(phase v1.PodPhase, state v1.ContainerState, restarts int32) *v1.PodStatus {
	return &v1.PodStatus{Phase: phase, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", State: state, RestartCount: restarts, Ready: state.Running != nil, ContainerID: fmt.Sprint("test://", restarts),
	}}}
}

func running() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func failed(restarts int32, code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", ContainerID: fmt.Sprint("test://", restarts),
		StartedAt: metav1.NewTime(time.Unix(100, 0)), FinishedAt: metav1.NewTime(time.Unix(101, 226e6)),
	}}
}

// set gives the pod a new status.
func (n *node) set(name string, after *v1.PodStatus) {
	current, found := n.pods[name]
	if !found {
		current = &nodePod{pod: heraldtest.NewPod(name)}
		n.pods[name] = current
	}
	n.lastVersion++
	version := history.Version{
		UID: podid.UID(current.pod.UID), Pod: current.pod, Before: current.status, After: after,
		Version: n.lastVersion, Previous: current.version, Via: transition.ViaWorker, Time: n.now,
	}
	current.status, current.version, current.after = after, n.lastVersion, transition.PodSummary(current.pod, after)
	n.accepted[name] = append(n.accepted[name], acceptedVersion{run: n.run, version: n.lastVersion, after: current.after})
	n.log.Accepted(version)
}

// remove removes the pod's status.
func (n *node) remove(name string) {
	current, found := n.pods[name]
	if !found {
		return
	}
	delete(n.pods, name)
	n.log.Accepted(history.Version{
		UID: podid.UID(current.pod.UID), Pod: current.pod, Before: current.status, After: current.status,
		Version: current.version, Previous: current.version, Via: transition.ViaRemove, Time: n.now, Removed: true,
	})
}

// step lets time pass and the log write.
func (n *node) step(d time.Duration) {
	n.now = n.now.Add(d)
	n.log.Step(n.now)
}

func all(tb testing.TB, log *history.Log) []history.Record {
	tb.Helper()
	records, err := log.All()
	if err != nil {
		tb.Fatal(err)
	}
	return records
}

func openOn(tb testing.TB, disk *history.Disk, change func(*history.Config)) *history.Log {
	tb.Helper()
	config := history.Config{Dir: "unused", MaxDisk: 1 << 20}
	if change != nil {
		change(&config)
	}
	log, err := history.OpenOn(config, disk)
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

func ofKind(records []history.Record, kind history.Kind) []history.Record {
	return slices.DeleteFunc(slices.Clone(records), func(record history.Record) bool { return record.Kind != kind })
}
