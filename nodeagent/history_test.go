package nodeagent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/transition"
)

// TestNodeAgent_History runs a pod that fails, in the process runtime, and stops and starts the agent: the history tells its
// end with code, cause and last lines, what the API server acknowledged, changes of the node, and the runs of the agent.
func TestNodeAgent_History(t *testing.T) {
	server := heraldtest.NewAPIServer()
	config := newConfig(t, `apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  hostNetwork: true
  containers:
  - name: main
    image: host
    command: [sh, -c, "echo cannot open the database; exit 3"]
`)
	config.API, config.Version = server.Config(), "v0.test"
	query := func(n *nodeagent.NodeAgent, kinds ...history.Kind) []history.Record {
		page, err := n.History.Query(t.Context(), history.Query{Kinds: kinds, Limit: history.MaxLimit})
		if err != nil {
			t.Fatal(err)
		}
		return page.Records
	}
	isEnd := func(record history.Record) bool {
		return slices.ContainsFunc(record.Changes, func(change transition.Change) bool {
			return change.Exit != nil && change.Exit.Code == 3 && record.Cause == transition.CauseRuntime && record.Name == "crash-n1"
		})
	}
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "record of the failure", func() bool { return slices.ContainsFunc(query(n, history.KindPod), isEnd) })
		eventually(t, "attached lines", func() bool {
			return slices.ContainsFunc(query(n, history.KindLog), func(record history.Record) bool {
				return strings.Contains(record.Attachment.Lines, "cannot open the database") && record.Attachment.Context.Code == 3
			})
		})
		eventually(t, "acknowledged version", func() bool {
			return slices.ContainsFunc(query(n, history.KindPod), func(record history.Record) bool { return record.SyncedMs != nil })
		})
		eventually(t, "event of the pod", func() bool {
			return slices.ContainsFunc(query(n, history.KindEvent), func(record history.Record) bool { return record.Name == "crash-n1" })
		})
		eventually(t, "latencies of the API server", func() bool {
			latencies := n.Inspector.Node(t.Context()).Agent.Latencies
			return latencies.StatusLagP99Ms != nil && latencies.APIP99Ms != nil && latencies.OldestUnsentMs != nil
		})
		broken := filepath.Join(config.StaticPodPath, "broken.yaml")
		if err := os.WriteFile(broken, []byte("kind: Pod\nspec: {imag: x}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		isProblem := func(isResolved bool) func(history.Record) bool {
			return func(record history.Record) bool {
				return strings.HasSuffix(record.Source.Location, "broken.yaml") && record.Source.Resolved == isResolved
			}
		}
		eventually(t, "problem of the file", func() bool { return slices.ContainsFunc(query(n, history.KindSource), isProblem(false)) })
		if err := os.Remove(broken); err != nil {
			t.Fatal(err)
		}
		eventually(t, "end of the problem", func() bool { return slices.ContainsFunc(query(n, history.KindSource), isProblem(true)) })
		n.RecordLevel(load.Node{Level: load.LevelNormal}, load.Node{
			Level: load.LevelBusy, Saturation: load.Saturation{Value: load.Known(.6), Culprit: load.Disk},
		})
		eventually(t, "record of the load", func() bool {
			want := []transition.Change{{Field: transition.FieldLoad, From: "normal", To: "busy", Reason: "disk", Message: "0.60"}}
			return slices.ContainsFunc(query(n, history.KindNode), func(record history.Record) bool { return slices.Equal(record.Changes, want) })
		})
		eventually(t, "record of the node", func() bool {
			return slices.ContainsFunc(query(n, history.KindNode), func(record history.Record) bool { return strings.HasPrefix(record.After, "Ready") })
		})
	})
	run(t, config, func(n *nodeagent.NodeAgent) {
		if !slices.ContainsFunc(query(n, history.KindPod), isEnd) {
			t.Error("the history of the first run is lost")
		}
		eventually(t, "the runs of the agent", func() bool {
			var events []string
			for _, record := range query(n, history.KindAgent) {
				events = append(events, record.Agent.Event)
			}
			return slices.Equal(events, []string{history.EventStarted, history.EventStopped, history.EventStarted})
		})
	})
}
