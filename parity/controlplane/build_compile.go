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
	packages := []string{kubernetesModule + "/cmd/kube-apiserver"}
	for _, folder := range own {
		packages = append(packages, "./"+folder)
	}
	fmt.Fprintf(progress, "building kube-apiserver %s and etcd %s from their Go modules: "+
		"about 6 minutes on two cores the first time, seconds later on\n", m.kubernetes, m.etcd)
	start := time.Now()
	compiled, err := m.goBuild(ctx, into, packages, progress)
	if err == nil {
		fmt.Fprintf(progress, "built in %v, %d packages compiled\n", time.Since(start).Round(time.Second), compiled)
	}
	return err
}

// goBuild builds packages, says on progress when that takes long, and returns how many had to be compiled.
func (m module) goBuild(ctx context.Context, into string, packages []string, progress io.Writer) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append([]string{"build", "-v", "-o", into, "-ldflags", m.ldflags()}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = m.dir
	output, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("go build: %w", err)
	}
	start := time.Now()
	compiled, complaints := follow(output, func(packages int) {
		fmt.Fprintf(progress, "still building: %v, %d packages compiled\n", time.Since(start).Round(time.Second), packages)
	})
	if err := cmd.Wait(); err != nil {
		return compiled, fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), m.dir, err, strings.Join(complaints, "\n"))
	}
	return compiled, nil
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
