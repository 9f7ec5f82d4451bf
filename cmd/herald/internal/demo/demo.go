// Package demo runs a demonstration on any machine: an agent without a cluster, four pods as host processes, and a story about them,
// as a live view in a terminal or as lines elsewhere.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/server/page"
)

// Options configure the demo.
type Options struct {
	// For ends the demo when the story is told, or after this time with an error that says what did not happen. Zero runs it until
	// ctx ends.
	For time.Duration
	Out io.Writer
}

// Run runs the demo. When it returns, all its processes have ended and its files are removed.
func Run(ctx context.Context, options Options) (err error) {
	dir, err := os.MkdirTemp("", "herald-demo-")
	if err != nil {
		return fmt.Errorf("create a directory for the demo: %w\nSet TMPDIR to a writable directory", err)
	}
	if err := server.CheckAddress("unix://" + filepath.Join(dataDir(dir), "process.sock")); err != nil {
		return errors.Join(fmt.Errorf("%w\nSet TMPDIR to a directory with a shorter path", err), os.RemoveAll(dir))
	}
	reaper, err := startReaper(ctx, dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, reaper.release()) }()
	d := &demo{dir: dir, options: options, progress: newProgress()}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return d.run(ctx)
}

type demo struct {
	dir      string
	options  Options
	agent    *nodeagent.NodeAgent
	listener net.Listener
	page     *page.Page
	// pageListener is that of the page.
	pageListener net.Listener
	webURL       string // of the pod web
	progress     *progress
	story        story
	started      time.Time
}

func (d *demo) prepare(ctx context.Context) error {
	if err := os.Mkdir(manifestDir(d.dir), 0o700); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of this program, which the pods run: %w", err)
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return err
	}
	err = writeManifests(manifestDir(d.dir), manifestValues{Program: program, WebPort: ports[0], SlowPort: ports[1]})
	if err != nil {
		return err
	}
	d.webURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	if err := os.WriteFile(ruleFile(d.dir), rules, 0o600); err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	if d.agent, err = newAgent(d.dir); err != nil {
		return err
	}
	if d.listener, err = server.Listen(ctx, "127.0.0.1:0"); err != nil {
		return errors.Join(err, d.agent.Close())
	}
	if d.pageListener, err = server.Listen(ctx, "127.0.0.1:0"); err != nil {
		return errors.Join(err, d.listener.Close(), d.agent.Close())
	}
	return nil
}

// commandName returns what a user types to run this program.
func commandName() string {
	path, err := os.Executable()
	isInPath := !strings.Contains(os.Args[0], "/")
	if err != nil || isInPath || strings.ContainsAny(path, " \t\n'\"\\$`&;|<>()*?[]#~!{}") {
		return "herald"
	}
	return path
}

func (d *demo) pageURL() string {
	return "http://" + d.pageListener.Addr().String() + "/#c=" + d.page.Code()
}

func (d *demo) header() []string {
	return []string{
		"Herald runs four pods as host processes: no containers, no cluster, no root.",
		"  look   " + d.pageURL(),
		"  edit   " + filepath.Join(manifestDir(d.dir), "web.yaml"),
		"         " + ruleFile(d.dir),
		"  query  " + commandName() + " get pods -w -s " + d.listener.Addr().String(),
		"         " + commandName() + " alerts -s " + d.listener.Addr().String(),
		"         curl http://" + d.listener.Addr().String() + "/pods",
		"  stop   Ctrl-C; removes everything",
		"",
	}
}

// run runs the agent, shows its pods until the demo ends, and stops them.
func (d *demo) run(ctx context.Context) error {
	agentCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	localServer, err := server.New(server.Config{
		Agent: d.agent.Agent, History: d.agent.History, Inspector: d.agent.Inspector, Loads: d.agent.Inspector, Operator: d.agent.Inspector,
		Alerting: d.agent.Alerts, Actions: d.agent.Actions, Containers: d.agent.Containers,
	})
	if err != nil {
		return err
	}
	if d.page, err = page.New(localServer); err != nil {
		return err
	}
	var running sync.WaitGroup
	agentEnded := make(chan error, 1)
	running.Go(func() { agentEnded <- d.agent.Run(agentCtx) })
	running.Go(func() { _ = localServer.Serve(agentCtx, d.listener) })
	running.Go(func() { _ = server.Serve(agentCtx, d.pageListener, nil, d.page, slog.New(slog.DiscardHandler)) })
	isTold, watchErr := d.watch(ctx, agentEnded)
	if watchErr == nil {
		watchErr = d.result(isTold, ctx.Err() != nil)
	}
	stopErr := d.stopPods(agentCtx)
	stop()
	running.Wait()
	if stopErr == nil {
		stopErr = os.RemoveAll(d.dir)
	}
	return errors.Join(watchErr, stopErr)
}

// watch tells the story and shows the pods until the demo ends. With Options.For that is when the story is told.
func (d *demo) watch(parent context.Context, agentEnded <-chan error) (isTold bool, err error) {
	d.started = time.Now()
	d.story.since = d.started
	ctx, cancel := context.WithCancel(parent)
	if d.options.For > 0 {
		ctx, cancel = context.WithTimeout(parent, d.options.For)
	}
	events, records := make(chan watch.Event), make(chan history.Record)
	var forwarding sync.WaitGroup
	forwarding.Go(func() { forward(ctx, d.agent.Agent.WatchLocalPods(ctx), events) })
	kinds := []history.Kind{history.KindAlert, history.KindAction, history.KindSource}
	forwarding.Go(func() { forward(ctx, d.agent.History.Follow(ctx, history.Query{Kinds: kinds}, 0), records) })
	defer func() {
		cancel()
		forwarding.Wait()
	}()
	display := newDisplay(d.options.Out, d.header())
	defer display.close()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	teller := &teller{demo: d, display: display, lines: map[string]string{}}
	for !display.isClosed() {
		if teller.tell(ctx); d.options.For > 0 && d.story.isTold() {
			return true, nil
		}
		select {
		case err := <-agentEnded:
			return false, fmt.Errorf("agent ended: %w", err)
		case <-ctx.Done():
			return false, nil
		case event := <-events:
			teller.addPod(event)
		case record := <-records:
			teller.addRecord(&record)
		case <-display.resized():
		case <-ticker.C:
		}
	}
	return false, errors.New("output was closed")
}

// forward sends what is yielded until ctx ends.
func forward[T any](ctx context.Context, sequence iter.Seq[T], out chan<- T) {
	for value := range sequence {
		select {
		case out <- value:
		case <-ctx.Done():
			return
		}
	}
}

// result returns an error if something did not happen.
func (d *demo) result(isTold, isInterrupted bool) error {
	switch missing := d.progress.missing(); {
	case d.options.For == 0:
		return nil
	case len(missing) > 0 && isInterrupted:
		return fmt.Errorf("interrupted before: %s", strings.Join(missing, "; "))
	case len(missing) > 0 && isTold:
		return fmt.Errorf("the story was not as expected: %s", strings.Join(missing, "; "))
	case len(missing) > 0:
		return fmt.Errorf("not reached within %v: %s", d.options.For, strings.Join(missing, "; "))
	}
	fmt.Fprintln(d.options.Out, "All pods, alerts and manifests reached their expected states.")
	return nil
}

// stopPods removes the manifests and waits until all pods are gone.
func (d *demo) stopPods(ctx context.Context) error {
	fmt.Fprintln(d.options.Out, "Stopping the pods...")
	if err := removeManifests(d.dir); err != nil {
		return err
	}
	if err := waitForEmpty(ctx, d.agent); err != nil {
		return err
	}
	fmt.Fprintln(d.options.Out, "Everything is removed.")
	return nil
}
