package history_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/history"
)

// childEnv makes the test binary a child process that writes a history in this directory until it is killed.
const childEnv = "HISTORY_TEST_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writeForever(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeForever writes versions and prints the sequence number of each record that a reader sees.
func writeForever(dir string) error {
	log, err := history.Open(history.Config{Dir: dir, MaxDisk: 1 << 20})
	if err != nil {
		return err
	}
	n := newNode()
	n.log = log
	go func() {
		for i := 0; ; i++ {
			n.now = time.Now()
			n.set(fmt.Sprint("pod-", i%10), status(v1.PodRunning, running(), int32(i)))
			time.Sleep(50 * time.Microsecond)
		}
	}()
	go func() {
		for record := range log.Follow(context.Background(), history.Query{}, log.LastSeq()) {
			fmt.Println(record.Seq)
		}
	}()
	return log.Run(context.Background())
}

// TestH3_KillAtRandomMoment kills a process that writes a history, again and again. What a reader saw must still be there.
func TestH3_KillAtRandomMoment(t *testing.T) {
	kills := 6
	if testing.Short() {
		kills = 2
	}
	dir := t.TempDir()
	for range kills {
		seen := killWhileWriting(t, dir)
		log, err := history.Open(history.Config{Dir: dir, MaxDisk: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		records := all(t, log)
		first, present := records[0].Seq, map[uint64]bool{}
		for i, record := range records {
			present[record.Seq] = true
			if i > 0 && record.Seq <= records[i-1].Seq {
				t.Errorf("sequence number %d after %d", record.Seq, records[i-1].Seq)
			}
		}
		for _, seq := range seen {
			if !present[seq] && seq >= first {
				t.Errorf("record %d was seen and is lost", seq)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killWhileWriting returns the sequence numbers that the child printed before it was killed.
func killWhileWriting(t *testing.T, dir string) (seen []uint64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	target := 1 + rand.IntN(800)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		seq, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			break // the kill was in the middle of a line
		}
		if seen = append(seen, seq); len(seen) == target {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // the error is the kill
	return seen
}
