package nodeagent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/alert/manager"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/inspect"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
	"github.com/heraldnode/herald/transition"
)

// HistoryConfig configures the history of statuses; see history.Config. Zero fields mean the defaults there.
type HistoryConfig struct {
	// MaxDisk bounds the files in bytes; a negative size keeps the history in memory.
	MaxDisk int64
	MaxAge  time.Duration
	// LogLines and LogBytes bound the lines that are attached to the end of a failed container; negative LogLines attach none.
	LogLines, LogBytes int
	Sync               time.Duration
}

func (n *NodeAgent) openHistory() (err error) {
	n.History, err = history.Open(history.Config{
		Dir: n.path("history"), MaxDisk: n.config.History.MaxDisk, MaxAge: n.config.History.MaxAge, Sync: n.config.History.Sync,
		LogLines: n.config.History.LogLines, LogBytes: n.config.History.LogBytes, ReadLog: n.readLog,
		MemoryAvailable: func() int64 { return n.Node.MemoryAvailable() },
		OnNodeChange:    n.tellNodeChange,
		AgentVersion:    n.config.Version, BootID: readBootID(), Logger: n.config.Logger, Metrics: n.config.Metrics,
	})
	return err
}

func (n *NodeAgent) readLog(_ context.Context, request history.LogRequest) (string, error) {
	return n.runtime.LogTail(request.Pod, request.Container, int(request.Attempt), request.Lines, request.Bytes)
}

// historyJournal passes what the status manager accepts and the API server acknowledges to the history, and counts it.
type historyJournal struct {
	log    *history.Log
	tally  *inspect.Tally
	alerts *manager.Manager // nil if alerting is disabled
}

// Accepted implements status.Journal.
func (j historyJournal) Accepted(v status.Version) {
	j.log.Accepted(history.Version{
		UID: v.UID, Pod: v.Pod, Before: v.Before, After: v.After, Version: v.Version, Previous: v.Previous,
		Via: transition.Via(v.Via), Time: v.Time, Removed: v.Removed,
	})
	if j.alerts != nil {
		j.alerts.PodVersion(manager.Version{
			UID: v.UID, Pod: v.Pod, Before: v.Before, After: v.After, Version: v.Version, Time: v.Time, Removed: v.Removed,
			Restored: v.Via == status.ViaRestore,
		})
	}
	if v.Removed {
		j.tally.Forget(v.UID)
		return
	}
	j.tally.Accepted(v.UID, v.Before, v.After, v.Time)
}

// Acknowledged implements status.Journal.
func (j historyJournal) Acknowledged(uid podid.UID, version uint64, at time.Time) {
	j.log.Acknowledged(uid, version, at)
	if j.alerts != nil {
		j.alerts.PodSynced(uid)
	}
}

// recordNode passes a version of the Node object to the history.
func (n *NodeAgent) recordNode(before, after *v1.Node) {
	n.History.NodeChanged(before, after)
	n.refreshAlerting()
}

// tellKnownPods passes the pods of the node to those who wait for them after a start.
func (n *NodeAgent) tellKnownPods(known map[types.UID]bool) {
	n.History.KnownPods(known)
	if n.Alerts == nil {
		return
	}
	desired := map[types.UID]bool{} // neither mirror pods nor those that only have to be cleaned up
	for _, pod := range n.Agent.Pods.GetPods() {
		desired[pod.UID] = true
	}
	n.Alerts.KnownPods(desired)
}

// recordStop passes the reason of a stop to the history, which finds it by the container ID of the status.
func (n *NodeAgent) recordStop(stop plan.Stop) {
	n.History.Stopping(stop.ID.String(), string(stop.Reason), stop.Message)
	if n.Alerts != nil {
		n.Alerts.Stopping(stop.ID.String(), string(stop.Reason))
	}
}

// recordProblem passes a problem of a source to the history.
func (n *NodeAgent) recordProblem(problem source.Problem, isResolved bool) {
	n.History.SourceChanged(history.SourceProblem{
		Source: string(problem.Source), Location: problem.Location, Line: problem.Line, Field: problem.Field, Message: problem.Message,
		Unavailable: problem.Unavailable, Resolved: isResolved,
	})
	n.refreshAlerting()
}

func (n *NodeAgent) recordLease(err error) {
	message := ""
	if err != nil {
		message = err.Error()
		n.tellNodeEvent("lease", time.Now())
	}
	n.History.LeaseChanged(err == nil, message)
}

// readBootID returns the identifier of this boot of the machine, or "" if it is not known.
func readBootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// runHistory runs the history until ctx ends. A history that fails does not stop the agent.
func (n *NodeAgent) runHistory(ctx context.Context) {
	if err := n.History.Run(ctx); err != nil {
		n.config.Logger.Error("Failed to close history", "err", fmt.Errorf("%s: %w", n.path("history"), err))
	}
}
