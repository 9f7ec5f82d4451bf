package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cmd/herald/internal/client"
)

// logsFlags are the flags of 'herald logs', which are kubectl's.
type logsFlags struct {
	containerFlags

	follow, previous, timestamps        bool
	allContainers, prefix, ignoreErrors bool
	tail, limitBytes                    int64
	since                               time.Duration
	sinceTime                           string
	maxRequests                         int
	startTimeout                        time.Duration
}

func newLogsCommand() *cobra.Command {
	f := &logsFlags{}
	command := &cobra.Command{
		Use: "logs [-f] [-p] POD [-c CONTAINER]", Short: "Print the logs of a container", GroupID: groupAsk,
		DisableFlagsInUseLine: true,
		Long: `Print the logs of a container, as 'kubectl logs' does, through the agent's socket: no API server is needed. They are read from the
node's files, so the logs of containers that have ended are there as long as their files are. With --tail, --since or --since-time
older lines are taken from rotated files.

With --follow the command ends when the container does. If the agent ends first, the exit status is 3.`,
		Example: `  # The last lines of a pod with one container, and what comes.
  sudo herald logs -f --tail 20 web-n1

  # Why did the instance before this one end?
  sudo herald logs -p web-n1 -c web

  # All containers of a pod since a time.
  sudo herald logs web-n1 --all-containers --prefix --timestamps --since-time 2026-01-02T12:00:00Z`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && !isPodResource(args[0]) && f.container == "" { // kubectl's inline CONTAINER
				args, f.container = args[:1], args[1]
			}
			name, err := parsePodName(cmd, args)
			if err != nil {
				return err
			}
			return f.run(cmd, name)
		},
	}
	command.ValidArgsFunction = f.bindContainer(command).complete
	flags := command.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "print what is added to the log until the container ends")
	flags.BoolVarP(&f.previous, "previous", "p", false, "print the log of the previous instance of the container")
	flags.BoolVar(&f.timestamps, "timestamps", false, "print the time of each line")
	flags.BoolVar(&f.allContainers, "all-containers", false, "print the logs of all containers of the pod")
	flags.BoolVar(&f.prefix, "prefix", false, "print the names of the pod and the container before each line")
	flags.BoolVar(&f.ignoreErrors, "ignore-errors", false, "print errors and continue with the next container")
	flags.Int64Var(&f.tail, "tail", -1, "number of lines at the end of the log; -1 means all")
	flags.Int64Var(&f.limitBytes, "limit-bytes", 0, "maximum number of bytes; 0 means no limit")
	flags.DurationVar(&f.since, "since", 0, "print what was logged in this time, like 5s, 2m or 3h")
	flags.StringVar(&f.sinceTime, "since-time", "", "print what was logged since this time (RFC 3339)")
	flags.IntVar(&f.maxRequests, "max-log-requests", 5, "maximum number of logs to follow at once")
	flags.DurationVar(&f.startTimeout, "pod-running-timeout", 20*time.Second, "how long --follow waits for the container to start")
	return command
}

// options returns the options of a request, or an error in kubectl's words.
func (f *logsFlags) options() (*v1.PodLogOptions, error) {
	options := &v1.PodLogOptions{Follow: f.follow, Previous: f.previous, Timestamps: f.timestamps}
	switch {
	case f.sinceTime != "" && f.since != 0:
		return nil, usageErrorf("at most one of `sinceTime` or `sinceSeconds` may be specified")
	case f.allContainers && f.container != "":
		return nil, usageErrorf("--all-containers=true should not be specified with container name %s", f.container)
	case f.limitBytes < 0:
		return nil, usageErrorf("--limit-bytes must be greater than 0")
	case f.since < 0:
		return nil, usageErrorf("--since must be greater than 0")
	case f.tail < -1:
		return nil, usageErrorf("--tail must be greater than or equal to -1")
	}
	if f.sinceTime != "" {
		at, err := time.Parse(time.RFC3339, f.sinceTime)
		if err != nil {
			return nil, usageErrorf("--since-time: %w", err)
		}
		options.SinceTime = new(metav1.NewTime(at))
	}
	if f.since > 0 {
		options.SinceSeconds = new(max(1, int64(f.since.Round(time.Second).Seconds())))
	}
	if f.limitBytes > 0 {
		options.LimitBytes = &f.limitBytes
	}
	if f.tail >= 0 {
		options.TailLines = &f.tail
	}
	return options, nil
}

func (f *logsFlags) run(cmd *cobra.Command, name string) error {
	options, err := f.options()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return err
	}
	f.setDefault()
	pod, err := findPod(cmd.Context(), f.client(), &f.namespaceFlags, name)
	if err != nil {
		return err
	}
	containers, err := f.selectContainers(pod, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if f.follow && len(containers) > 1 && len(containers) > f.maxRequests {
		return usageErrorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, "+
			"use --max-log-requests to increase the limit", len(containers), f.maxRequests)
	}
	p := &logPrinter{flags: f, pod: pod, options: options, out: bufio.NewWriter(cmd.OutOrStdout()), errOut: cmd.ErrOrStderr()}
	if f.follow && len(containers) > 1 {
		return p.printConcurrently(cmd.Context(), containers)
	}
	for _, container := range containers {
		if err := p.print(cmd.Context(), container); err != nil {
			return err
		}
	}
	return nil
}

// selectContainers returns the names of the containers whose logs are printed, init containers first.
func (f *logsFlags) selectContainers(pod *v1.Pod, stderr io.Writer) ([]string, error) {
	if !f.allContainers {
		container, err := f.findContainer(pod, stderr)
		if err != nil {
			return nil, err
		}
		return []string{container.Name}, nil
	}
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names, nil
}

// logPrinter prints logs of one pod.
type logPrinter struct {
	flags   *logsFlags
	pod     *v1.Pod
	options *v1.PodLogOptions
	errOut  io.Writer

	mu  sync.Mutex // guards out, so that lines of several containers do not mix
	out *bufio.Writer
}

// print prints the log of one container.
func (p *logPrinter) print(ctx context.Context, container string) error {
	options := *p.options
	options.Container = container
	writer := &lineWriter{printer: p}
	if p.flags.prefix {
		writer.prefix = "[pod/" + p.pod.Name + "/" + container + "] "
	}
	err := p.request(ctx, &options, writer)
	err = cmp.Or(writer.flush(), err)
	var response *client.ResponseError
	if errors.As(err, &response) && p.flags.ignoreErrors {
		fmt.Fprintln(p.errOut, "error:", err)
		return nil
	}
	return err
}

// request asks for the log. If it is to be followed and the container has not started, it asks again for a while, as kubectl does.
func (p *logPrinter) request(ctx context.Context, options *v1.PodLogOptions, writer io.Writer) error {
	deadline := time.Now().Add(p.flags.startTimeout)
	for last := ""; ; {
		err := p.flags.client().Log(ctx, p.pod, options, writer)
		var response *client.ResponseError
		isWaiting := errors.As(err, &response) && response.Code == http.StatusBadRequest
		if !isWaiting || !options.Follow || p.flags.ignoreErrors || !time.Now().Before(deadline) {
			return err
		}
		if message := err.Error(); message != last {
			fmt.Fprintln(p.errOut, message)
			last = message
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// printConcurrently follows the logs of several containers. It ends when all of them have ended or one fails.
func (p *logPrinter) printConcurrently(ctx context.Context, containers []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(containers))
	for _, container := range containers {
		go func() { results <- p.print(ctx, container) }()
	}
	for range containers {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// lineWriter prints whole lines with a prefix. Without one, it prints what it gets at once.
type lineWriter struct {
	printer *logPrinter
	prefix  string
	midLine bool
	rest    []byte // the beginning of a line, if several containers are followed
}

// Write implements io.Writer.
func (w *lineWriter) Write(content []byte) (int, error) {
	w.rest = append(w.rest, content...)
	end := len(w.rest)
	if w.printer.flags.follow && w.printer.flags.allContainers {
		const maxLine = 1 << 20 // a longer one is printed in pieces
		if end = lastLineEnd(w.rest); end == 0 && len(w.rest) > maxLine {
			end = len(w.rest)
		}
	}
	err := w.printLines(w.rest[:end])
	w.rest = w.rest[:copy(w.rest, w.rest[end:])]
	return len(content), err
}

// flush prints a line without an end.
func (w *lineWriter) flush() error {
	err := w.printLines(w.rest)
	w.rest = nil
	return err
}

// printLines prints content that may end within a line.
func (w *lineWriter) printLines(content []byte) error {
	w.printer.mu.Lock()
	defer w.printer.mu.Unlock()
	out := w.printer.out
	for line := range bytes.Lines(content) {
		if !w.midLine {
			_, _ = out.WriteString(w.prefix) // a bufio.Writer keeps its error
		}
		_, _ = out.Write(line)
		w.midLine = line[len(line)-1] != '\n'
	}
	return out.Flush()
}

func lastLineEnd(content []byte) int { return bytes.LastIndexByte(content, '\n') + 1 }
