package stats_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/load"
	"github.com/heraldnode/herald/stats"
)

// runFor runs a collector for a while and returns it and its log.
func runFor(t *testing.T, dir string, d time.Duration) (*stats.Collector, string) {
	t.Helper()
	var log bytes.Buffer
	collector, err := stats.New(stats.Config{
		Machine: newMachine(t, "testdata/ok"), Pods: &fakeRuntime{start: time.Now()}, Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := collector.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return collector, log.String()
}

func knownOf(values []load.Value) (known int) {
	for _, value := range values {
		if value.IsKnown() {
			known++
		}
	}
	return known
}

// TestArchive_Restart checks that the loads of the last 24 hours and the level survive a restart of the agent.
func TestArchive_Restart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "load")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		first, _ := runFor(t, dir, 3*time.Hour)
		since := first.Time(first.Node().LevelSince)
		time.Sleep(5 * time.Minute)
		second, log := runFor(t, dir, time.Hour)
		if log != "" {
			t.Errorf("got log %s", log)
		}
		memory := second.NodeDay(start).Values[2]
		if known := knownOf(memory); known < 4*60-5 || len(memory)-known < 3 || len(memory)-known > 6 {
			t.Errorf("got %d known values of %d, want those of four hours but for the five minutes between", known, len(memory))
		}
		points, found := second.PodDay("a", start)
		if cpu := knownOf(points.Values[0]); !found || cpu < 4*12-3 {
			t.Errorf("got %d values of the pod, want those of four hours", cpu)
		}
		if got := second.Time(second.Node().LevelSince); !got.Equal(since) || second.Node().Level != first.Node().Level {
			t.Errorf("got level %s since %v, want %s since %v", second.Node().Level, got, first.Node().Level, since)
		}
		time.Sleep(time.Hour)
		third, _ := runFor(t, dir, time.Minute)
		if got := third.Time(third.Node().LevelSince); got.Equal(since) {
			t.Error("a level of an hour ago is the present one")
		}
	})
}

// TestArchive_Crash checks that a crash loses at most what was measured since the last save.
func TestArchive_Crash(t *testing.T) {
	dir, copied := filepath.Join(t.TempDir(), "load"), filepath.Join(t.TempDir(), "load")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		time.AfterFunc(time.Hour, func() {
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Error(err)
			}
		})
		runFor(t, dir, time.Hour+time.Second)
		collector, _ := runFor(t, copied, time.Second)
		if known := knownOf(collector.NodeDay(start).Values[2]); known < 53 {
			t.Errorf("got %d minutes of the last hour, want all but six", known)
		}
	})
}

// TestArchive_Corrupt checks that a damaged file is moved away and a new one begun, and that both are logged.
func TestArchive_Corrupt(t *testing.T) {
	for name, damage := range map[string]func(content []byte) []byte{
		"bit":       func(content []byte) []byte { content[len(content)/2] ^= 1; return content },
		"truncated": func(content []byte) []byte { return content[:len(content)/2] },
		"empty":     func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "load")
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				runFor(t, dir, time.Hour)
				file := filepath.Join(dir, "day")
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, damage(content), 0o600); err != nil {
					t.Fatal(err)
				}
				collector, log := runFor(t, dir, 10*time.Minute)
				if !strings.Contains(log, "starting anew") || !strings.Contains(log, "day.corrupt") {
					t.Errorf("got log %q", log)
				}
				if known := knownOf(collector.NodeDay(start).Values[2]); known < 9 || known > 12 {
					t.Errorf("got %d values, want those of ten minutes", known)
				}
				if _, log := runFor(t, dir, time.Minute); log != "" {
					t.Errorf("the new file: got log %s", log)
				}
			})
		})
	}
}

// TestArchive_Unusable checks that an agent whose directory cannot be used keeps the loads in memory.
func TestArchive_Unusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		collector, log := runFor(t, file, 10*time.Minute)
		if !strings.Contains(log, "keeping it in memory") || knownOf(collector.NodeDay(start).Values[2]) < 9 {
			t.Errorf("got log %s", log)
		}
	})
}
