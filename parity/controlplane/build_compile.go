package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// progressInterval is the time between two lines of progress.
const progressInterval = 10 * time.Second

// compile builds all programs into a folder, under the names of their packages.
func (m module) compile(ctx context.Context, into string, progress io.Writer) error {
	args := []string{"build", "-v", "-o", into, "-ldflags", m.ldflags(), kubernetesModule + "/cmd/kube-apiserver"}
	for _, folder := range own {
		args = append(args, "./"+folder)
	}
	fmt.Fprintf(progress, "building kube-apiserver %s and etcd %s from their Go modules: "+
		"about 6 minutes on two cores the first time, seconds later on\n", m.kubernetes, m.etcd)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = m.dir
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	start := time.Now()
	packages, complaints := follow(output, func(packages int) {
		fmt.Fprintf(progress, "still building: %v, %d packages compiled\n", time.Since(start).Round(time.Second), packages)
	})
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), m.dir, err, strings.Join(complaints, "\n"))
	}
	fmt.Fprintf(progress, "built in %v, %d packages compiled\n", time.Since(start).Round(time.Second), packages)
	return nil
}

// follow reads what `go build -v` says until it says no more: a line with one word for each package that it compiles, and
// complaints. It reports the number of packages at every interval.
func follow(output io.Reader, report func(packages int)) (packages int, complaints []string) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case line, more := <-lines:
			switch {
			case !more:
				return packages, complaints
			case strings.Contains(line, " "):
				complaints = append(complaints, line)
			default:
				packages++
			}
		case <-ticker.C:
			report(packages)
		}
	}
}
