package cli_test

import (
	"bytes"
	"context"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/transition"
)

// fixedHistory returns its records, newest first.
type fixedHistory []history.Record

func (h fixedHistory) Query(_ context.Context, query history.Query) (history.Page, error) {
	var page history.Page
	for _, record := range h {
		if query.Name == "" || record.Name == query.Name && record.Namespace == query.Namespace {
			page.Records = append(page.Records, record)
		}
	}
	return page, nil
}

func (h fixedHistory) Follow(context.Context, history.Query, uint64) iter.Seq[history.Record] {
	return func(func(history.Record) bool) {}
}

func (h fixedHistory) FirstSeq() uint64 { return 1 }

func (h fixedHistory) LastSeq() uint64 { return 9 }

func TestHistory_Table(t *testing.T) {
	at := func(ms int) time.Time {
		return time.Now().Truncate(time.Hour).Add(time.Duration(ms) * time.Millisecond)
	}
	cart := history.PodRef{Namespace: "shop", Name: "cart-n1", UID: "2"}
	crash := alert.Labels{"alertname": "PodCrashLooping", "namespace": "shop", "pod": "cart-n1", "container": "web"}
	cartName := history.PodRef{Namespace: "shop", Name: "cart-n1"}
	records := fixedHistory{
		{Seq: 13, Time: at(131600), Kind: history.KindAction, PodRef: cartName, Action: &history.ActionRecord{
			Type: "restart-pod", Rule: "PodCrashLooping", Alert: crash.Key(), Decision: "refuse", Reason: "Young", Message: "started a moment ago",
		}},
		{Seq: 12, Time: at(131500), Kind: history.KindAction, PodRef: cartName, Action: &history.ActionRecord{
			ID: 17, Type: "restart-container", Container: "web", Rule: "PodCrashLooping", Alert: crash.Key(), Decision: "do", Outcome: "done", Message: "exit 0",
		}},
		{Seq: 11, Time: at(131400), Kind: history.KindAlert, PodRef: cartName, Alert: &history.AlertChange{
			State: alert.Resolved, Labels: crash, StartsAt: at(71400), Reason: "object gone",
		}},
		{Seq: 10, Time: at(71400), Kind: history.KindAlert, PodRef: cartName, Alert: &history.AlertChange{
			State: alert.Firing, Labels: crash, StartsAt: at(71400), Summary: "exit 3", Muted: true,
		}},
		{Seq: 9, Time: at(71400), Kind: history.KindNode, Transition: history.Transition{Changes: []transition.Change{
			{Field: transition.FieldLease, From: "renewed", To: "expired", Message: "connection refused"},
			{Field: transition.FieldLoad, From: "normal", To: "busy", Reason: "memory", Message: "0.83"},
			{Field: transition.FieldLoad, From: "busy", To: "idle"},
			{Field: transition.FieldBootID, From: "a", To: "b"}, {Field: transition.FieldClock, To: "1h0m0s"},
		}}},
		{Seq: 8, Time: at(71400), Kind: history.KindSource, Source: &history.SourceProblem{
			Source: "file", Location: "db.yaml", Line: 14, Field: "spec.imag", Message: "unknown field",
		}},
		{Seq: 7, Time: at(71400), Kind: history.KindSource, Source: &history.SourceProblem{Source: "http", Message: "timeout", Resolved: true}},
		{Seq: 6, Time: at(71350), Kind: history.KindEvent, PodRef: cart, Event: &history.Event{
			Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container", Container: "web", Count: 14,
		}},
		{Seq: 5, Time: at(71300), Kind: history.KindLog, PodRef: cart, Attachment: &history.Attachment{
			Of: 4, Container: "web", Lines: "starting\nopen /data: no such file", LineCount: 2,
		}},
		{Seq: 4, Time: at(71226), Kind: history.KindPod, PodRef: cart, SyncedMs: new(int64(41)), Transition: history.Transition{
			Cause: transition.CauseRuntime, Changes: []transition.Change{
				{Container: "web", Field: "state", From: "running", To: "terminated", Reason: "Error", Exit: &transition.Exit{Code: 3, RanMs: 70_000}},
				{Field: "Ready", From: "True", To: "False", Reason: "ContainersNotReady"},
				{Field: "ContainersReady", From: "True", To: "False"},
			},
		}},
		{Seq: 3, Time: at(0), Kind: history.KindPod, PodRef: cart, Transition: history.Transition{
			Cause: transition.CauseAgent, Changes: []transition.Change{
				{Container: "web", Field: "state", From: "waiting", To: "running"},
				{Container: "web", Field: "restartCount", From: "12", To: "13"},
			},
		}},
		{Seq: 2, Time: at(0), Kind: history.KindPod, PodRef: history.PodRef{Namespace: "shop", Name: "cart-n1", UID: "1"}, Transition: history.Transition{
			Cause: transition.CauseAPI, After: "Running 1/1", Changes: []transition.Change{{Field: "removed"}},
		}},
		{Seq: 1, Time: at(0), Kind: history.KindAgent, Agent: &history.AgentEvent{Event: history.EventStarted, Version: "v1\x1b[31m"}},
	}
	handler, err := server.New(server.Config{Agent: fakeAgent{time.Now()}, History: records})
	if err != nil {
		t.Fatal(err)
	}
	httpServer := httptest.NewServer(handler)
	defer httpServer.Close()
	address := strings.TrimPrefix(httpServer.URL, "http://")
	run := func(args string) (string, string, int) {
		var stdout, stderr bytes.Buffer
		status := cli.Main(append(strings.Fields("herald "+args), "-s", address), nil, &stdout, &stderr)
		return stdout.String(), stderr.String(), status
	}
	for args, want := range map[string][]string{
		"history pod/cart-n1 -n shop": {
			"web started (restart 13)", "agent\n", "1m11s   web ended: exit 3 Error, ran 1m10s", "runtime  +41ms", "Ready True -> False (ContainersNotReady)",
			"| open /data: no such file (2 lines: --logs)",
			"event BackOff: web: Back-off restarting failed container (14 times)", "Earlier pods of this name: 1 (--all).",
			"web: alert PodCrashLooping firing: exit 3 (muted)", "web: alert PodCrashLooping resolved after 1m: object gone",
			"web: action 17 restart-container done, alert PodCrashLooping: exit 0",
			"action restart-pod refused, alert PodCrashLooping: started a moment ago",
		},
		"history pod cart-n1 -n shop --logs --all": {"left the node (last: Running 1/1)", "| starting\n", "| open /data: no such file\n"},
		"history -A": {
			"shop/cart-n1", "agent started v1^[[31m", "lease expired: connection refused", "the machine was booted (boot b)",
			"load normal -> busy: memory 0.83\n", "load busy -> idle\n",
			"the clock was set by 1h0m0s", "file problem: db.yaml:14: spec.imag: unknown field", "http problem resolved: timeout",
		},
		"history pod/cart-n1 -n shop -o json": {`"kind": "HistoryList"`, `"lines": "starting\nopen /data: no such file"`},
	} {
		stdout, stderr, status := run(args)
		for _, text := range want {
			if !strings.Contains(stdout, text) {
				t.Errorf("%s: got %q, want %q in it", args, stdout, text)
			}
		}
		if status != 0 || stderr != "" || strings.Contains(stdout, "ContainersReady") && !strings.Contains(args, "json") {
			t.Errorf("%s: got status %d, %s%s", args, status, stdout, stderr)
		}
	}
	for args, want := range map[string]int{
		"history pod/other -n shop": 1, "history --limit 0": 2, "history --cursor 5 -f": 2, "history --cursor x": 2, "history deployment/web": 2, "history -o yaml": 2, "history --since=x": 1,
	} {
		if _, stderr, status := run(args); status != want {
			t.Errorf("%s: got status %d, %s, want %d", args, status, stderr, want)
		}
	}
	var stderr bytes.Buffer
	if status := cli.Main([]string{"herald", "history", "-s", "unix:///nonexistent/herald.sock"}, nil, &stderr, &stderr); status != 3 {
		t.Errorf("without an agent: got status %d, want 3", status)
	}
}
