// Command guest tests Herald inside a machine of its own, as the only agent of a real systemd: hack/systemd boots a container with
// systemd-nspawn, and hack/vm a virtual machine with a cgroup v2 kernel and containerd. It runs as a service and continues after a
// reboot with the next stage. Each check writes a line to the results; the last line is "done" or "failed".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// stateDir holds what must survive a reboot: the number of the stage and what the previous one saw.
const stateDir = "/var/lib/guest"

// stage is what runs between two boots.
type stage struct {
	name   string
	checks []check
	end    string // reboot, powercut or poweroff
}

type check struct {
	name string
	run  func(*guest)
}

// guest is passed to checks. A check that fails ends with its goroutine.
type guest struct {
	results *os.File
	failed  bool
}

func main() {
	plan := flag.String("plan", "systemd", "systemd, packages, vm or boots")
	results := flag.String("results", "/dev/stdout", "file to append results to")
	flag.Parse()
	plans := map[string][]stage{"systemd": systemdStages, "packages": packageStages(), "vm": vmStages, "boots": bootStages}
	if err := run(plans[*plan], *results); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(stages []stage, resultsPath string) error {
	results, err := os.OpenFile(resultsPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	g := &guest{results: results}
	number, err := nextStage()
	if err != nil {
		return err
	}
	if number >= len(stages) {
		return fmt.Errorf("stage %d of %d", number+1, len(stages))
	}
	current := stages[number]
	g.printf("stage %s", current.name)
	for _, c := range current.checks {
		g.check(c)
	}
	switch {
	case g.failed:
		g.printLogs()
		g.printf("failed")
		return command("systemctl", "poweroff")
	case number == len(stages)-1:
		g.printf("done")
	}
	if current.end == "powercut" {
		g.printf("powercut") // the host kills the machine now
		return nil
	}
	return command("systemctl", current.end)
}

// nextStage returns the number of this boot's stage.
func nextStage() (int, error) {
	file := filepath.Join(stateDir, "stage")
	content, err := os.ReadFile(file)
	number, _ := strconv.Atoi(string(content))
	if os.IsNotExist(err) {
		number, err = 0, os.MkdirAll(stateDir, 0o755)
	}
	if err != nil {
		return 0, err
	}
	return number, writeSynced(file, strconv.Itoa(number+1))
}

// writeSynced writes a file that survives a power cut.
func writeSynced(path, content string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(content); err != nil {
		return err
	}
	return file.Sync()
}

func (g *guest) check(c check) {
	began := time.Now()
	done := make(chan struct{})
	passed := false
	go func() {
		defer close(done)
		c.run(g)
		passed = true
	}()
	<-done
	if !passed {
		g.failed = true
		g.printf("FAIL %s (%.1f s)", c.name, time.Since(began).Seconds())
		return
	}
	g.printf("PASS %s (%.1f s)", c.name, time.Since(began).Seconds())
}

func (g *guest) printf(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		fmt.Fprintln(g.results, strings.TrimRight(line, "\n"))
	}
}

// fatalf fails the check.
func (g *guest) fatalf(format string, args ...any) {
	g.printf("     "+format, args...)
	runtime.Goexit()
}

func (g *guest) noError(err error) {
	if err != nil {
		g.fatalf("%v", err)
	}
}

// eventually fails the check if problem returns an error for several minutes.
func (g *guest) eventually(problem func() error) {
	const timeout, period = 10 * time.Minute, 250 * time.Millisecond
	deadline := time.Now().Add(timeout)
	for {
		err := problem()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			g.fatalf("after %v: %v", timeout, err)
		}
		time.Sleep(period)
	}
}

// printLogs adds the end of the logs to the results.
func (g *guest) printLogs() {
	for _, arguments := range [][]string{
		{"systemctl", "status", "--no-pager", "--full", "herald.service"},
		{"journalctl", "--no-pager", "-n", "60", "-u", "herald.service", "-u", "containerd.service"},
		{"herald", "get", "pods", "-A", "-o", "wide"},
	} {
		output, _ := exec.CommandContext(context.Background(), arguments[0], arguments[1:]...).CombinedOutput()
		g.printf("$ %s\n%s", strings.Join(arguments, " "), output)
	}
}

func command(arguments ...string) error {
	_, err := output(arguments...)
	return err
}

// output returns the trimmed standard output of a command.
func output(arguments ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(context.Background(), arguments[0], arguments[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(arguments, " "), err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}
