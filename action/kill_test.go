package action_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// killEnv makes a test process an agent that kills itself at a step: "STEP DIR".
const killEnv = "HERALD_TEST_ACTION_KILL"

func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// killingDeeds appends each deed to a file, and kills the process before, in the middle, or after.
type killingDeeds struct{ step, dir string }

func (d killingDeeds) Do(_ context.Context, request action.Request) (string, error) {
	if d.step == "before" {
		killSelf()
	}
	file, err := os.OpenFile(filepath.Join(d.dir, "deeds"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(file, "%d %s\n", request.ID, request.Type); err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	if d.step == "after" {
		killSelf()
	}
	return "", nil
}

// TestMain runs the tests, or the agent that TestR1_Kill kills.
func TestMain(m *testing.M) {
	step, dir, isChild := strings.Cut(os.Getenv(killEnv), " ")
	if !isChild {
		os.Exit(m.Run())
	}
	if err := runChild(step, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runChild(step, dir string) error {
	state, err := checkpoint.Open(filepath.Join(dir, "state"), checkpoint.Options{})
	if err != nil {
		return err
	}
	var offset atomic.Int64
	node := &fakeNode{pods: map[podid.FullName]*view.PodView{}}
	node.addPod("web", nil)
	actor, err := action.New(action.Config{
		State: state, Views: node, Deeds: killingDeeds{step, dir},
		Now: func() remedy.Instant { return remedy.Instant{At: time.Now().Add(time.Duration(offset.Load()))} },
		OnRecord: func(r action.Record) {
			if step == "intent" && r.Outcome == remedy.Running || step == "outcome" && r.Outcome == remedy.Done {
				killSelf()
			}
		},
	})
	if err != nil {
		return err
	}
	offset.Store(int64(5 * time.Minute)) // the agent was started five minutes ago
	fired := newAlert("Stuck", "web", 1)
	go func() { _ = actor.Run(context.Background()) }()
	actor.Fired(fired, enforce(remedy.Snapshot, remedy.RestartContainer), nil)
	for range 2 { // after the second answer, Run has decided about the alert
		if _, err := actor.Resume(context.Background(), ""); err != nil {
			return err
		}
	}
	for !isSettled(actor.List(0)) {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// isSettled reports whether both actions are in the ledger, and none is under way.
func isSettled(records []action.Record) bool {
	types := map[remedy.Type]bool{}
	for _, record := range records {
		if record.Outcome == remedy.Running {
			return false
		}
		types[record.Type] = true
	}
	return len(types) == 2
}

// TestR1_Kill kills an agent at each step of an action. Every deed has an intent of an earlier time on disk, an intent without an outcome
// is unknown, and no deed happens twice within its cool-down, however often the agent is started.
func TestR1_Kill(t *testing.T) {
	for _, step := range []string{"intent", "before", "after", "outcome"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			for i, kill := range []string{step, step, "never", "never"} {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				command := exec.CommandContext(ctx, os.Args[0]) //nolint:gosec // this test itself
				command.Env = append(os.Environ(), killEnv+"="+kill+" "+dir)
				output, err := command.CombinedOutput()
				cancel()
				status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
				if isKilled := status.Signaled() && status.Signal() == syscall.SIGKILL; i == 0 && !isKilled || err != nil && !isKilled {
					t.Fatalf("%s: %v: %s", kill, err, output)
				}
				checkLedger(t, dir)
			}
		})
	}
}

// checkLedger compares the deeds with the ledger.
func checkLedger(t *testing.T, dir string) {
	t.Helper()
	state, err := checkpoint.Open(filepath.Join(dir, "state"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = state.Close() }()
	log, err := checkpoint.NewLog[remedy.Ledger](state, "actions", 1)
	if err != nil {
		t.Fatal(err)
	}
	values, err := log.Load()
	if err != nil {
		t.Fatal(err)
	}
	var ledger remedy.Ledger
	for _, value := range values {
		ledger.Apply(value)
	}
	entries := map[string]remedy.Outcome{}
	for _, entry := range ledger.Entries {
		entries[fmt.Sprintf("%d %s", entry.ID, entry.Type)] = entry.Outcome
	}
	text, err := os.ReadFile(filepath.Join(dir, "deeds"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	types := map[string]int{}
	for _, deed := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if deed == "" {
			continue
		}
		if _, found := entries[deed]; !found {
			t.Errorf("got deed %q without an entry in %v", deed, entries)
		}
		_, kind, _ := strings.Cut(deed, " ")
		if types[kind]++; types[kind] > 1 {
			t.Errorf("got %s %d times: %s", kind, types[kind], text)
		}
	}
}
