package allocation_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/heraldnode/herald/allocation"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/podid"
)

// childEnv makes the test binary allocate pods in the directory that it names. limitEnv limits the size of its files.
const (
	childEnv = "ALLOCATION_TEST_DIR"
	limitEnv = "ALLOCATION_TEST_LIMIT"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	run := allocateForever
	if os.Getenv(limitEnv) != "" {
		run = allocateUntilFull
	}
	if err := run(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newChild(t *testing.T, dir string, env ...string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(append(os.Environ(), childEnv+"="+dir, "GORACE=atexit_sleep_ms=0"), env...)
	child.Stderr = os.Stderr
	return child
}

func openInChild(dir string) (*allocation.Manager, error) {
	state, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	return allocation.New(allocation.Config{State: state})
}

func hasAllocation(manager *allocation.Manager, name string) bool {
	_, found := manager.GetContainerResourceAllocation(podid.UID(name), "web")
	return found
}

// allocateForever prints the name of each pod once its allocation is recorded.
func allocateForever(dir string) error {
	manager, err := openInChild(dir)
	if err != nil {
		return err
	}
	for i := manager.Size(); ; i++ {
		name := fmt.Sprint("web-", i)
		if err := manager.SetPodAllocation(requestingPod(name)); err != nil {
			return err
		}
		fmt.Println(name)
	}
}

// TestF15_KillWhileAllocating checks that no allocation is lost that was acknowledged, whenever the process is killed.
func TestF15_KillWhileAllocating(t *testing.T) {
	dir := t.TempDir()
	var recorded []string
	for range 20 {
		child := newChild(t, dir)
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		remaining := rand.IntN(50)
		for lines := bufio.NewScanner(stdout); lines.Scan(); remaining-- {
			recorded = append(recorded, lines.Text())
			if remaining == 0 {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // the error is the kill
		manager, closeState := openManager(t, dir)
		for _, name := range recorded {
			if !hasAllocation(manager, name) {
				t.Fatalf("allocation of %s was lost", name)
			}
		}
		closeState()
	}
}

// allocateUntilFull lets the kernel reject the end of a write, and then allows it again.
func allocateUntilFull(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	manager, err := openInChild(dir)
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	full := limit
	full.Cur = 10_000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		return err
	}
	for i := 0; ; i++ {
		name := fmt.Sprint("web-", i)
		err := manager.SetPodAllocation(requestingPod(name))
		if err == nil {
			fmt.Println(name)
			continue
		}
		if !errors.Is(err, syscall.EFBIG) || hasAllocation(manager, name) {
			return fmt.Errorf("got %w, allocated %v, want EFBIG and no allocation", err, hasAllocation(manager, name))
		}
		break
	}
	manager.RemovePod("web-0")
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	return manager.SetPodAllocation(requestingPod("last"))
}

func TestF17_FullDisk(t *testing.T) {
	dir := t.TempDir()
	output, err := newChild(t, dir, limitEnv+"=1").Output()
	if err != nil {
		t.Fatal(err)
	}
	manager, _ := openManager(t, dir)
	recorded := 0
	for name := range strings.FieldsSeq(string(output)) {
		recorded++
		if found := hasAllocation(manager, name); found != (name != "web-0") {
			t.Errorf("%s: got allocation %v", name, found)
		}
	}
	if recorded < 10 || !hasAllocation(manager, "last") || manager.Size() != recorded {
		t.Errorf("got %d allocations after %d were recorded, last %v", manager.Size(), recorded, hasAllocation(manager, "last"))
	}
}
