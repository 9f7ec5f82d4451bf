// Package demo runs a demonstration on any machine: an agent without a cluster, four pods as host processes, and a live table
// of their statuses.
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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/server/page"
)

// Options configure the demo.
type Options struct {
	// For ends the demo after this time, with an error if a pod has not reached its expected states. Zero runs it until ctx
	// ends.
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
	d := &demo{dir: dir, options: options, progress: progress{}}
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
	progress     progress
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

func (d *demo) header() []string {
	return []string{
		"Herald runs four pods as host processes: no containers, no cluster, no root.",
		"  look   http://" + d.pageListener.Addr().String() + "/#c=" + d.page.Code(),
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
		Alerting: d.agent.Alerts, Actions: d.agent.Actions,
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
	watchErr := d.watch(ctx, agentEnded)
	stopErr := d.stopPods(agentCtx)
	stop()
	running.Wait()
	if stopErr == nil {
		stopErr = os.RemoveAll(d.dir)
	}
	return errors.Join(watchErr, stopErr)
}

// watch shows the pods until the demo ends. With Options.For it returns an error if an expected state was not reached.
func (d *demo) watch(parent context.Context, agentEnded <-chan error) error {
	started := time.Now()
	ctx, cancel := context.WithCancel(parent)
	if d.options.For > 0 {
		ctx, cancel = context.WithTimeout(parent, d.options.For)
	}
	events, records := make(chan watch.Event), make(chan history.Record)
	var forwarding sync.WaitGroup
	forwarding.Go(func() { forward(ctx, d.agent.Agent.WatchLocalPods(ctx), events) })
	forwarding.Go(func() {
		forward(ctx, d.agent.History.Follow(ctx, history.Query{Kinds: []history.Kind{history.KindAlert, history.KindAction}}, 0), records)
	})
	defer func() {
		cancel()
		forwarding.Wait()
	}()
	screen := newScreen(d.options.Out, d.header)
	defer screen.close()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for !screen.closed {
		screen.draw(d.agent.Agent.LocalPods(), d.alertLines(time.Now()), d.agent.Events.Recent(), time.Now())
		select {
		case err := <-agentEnded:
			return fmt.Errorf("agent ended: %w", err)
		case <-ctx.Done():
			return d.result(parent.Err() != nil)
		case event := <-events:
			d.progress.update(event.Object.(*v1.Pod))
			screen.printEvent(event, time.Since(started), time.Now())
		case record := <-records:
			d.progress.updateAlerts(&record)
			screen.printRecord(&record, time.Since(started))
		case <-screen.resized:
		case <-ticker.C:
		}
	}
	return errors.New("output was closed")
}

// alertLines returns the lines about alerts and the newest action.
func (d *demo) alertLines(now time.Time) []string {
	lines := alertLines(d.agent.Alerts.Alerts(), now)
	for _, newest := range d.agent.Actions.List(1) {
		text := fmt.Sprintf("action %s of %s for alert %s: %s", newest.Type, newest.Object, newest.Rule, newest.Decision)
		lines = append(lines, table.Printable(text))
	}
	return lines
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

// result returns an error if a pod has not reached its expected states.
func (d *demo) result(isInterrupted bool) error {
	switch missing := d.progress.missing(); {
	case d.options.For == 0:
		return nil
	case len(missing) > 0 && isInterrupted:
		return fmt.Errorf("interrupted before: %s", strings.Join(missing, "; "))
	case len(missing) > 0:
		return fmt.Errorf("not reached within %v: %s", d.options.For, strings.Join(missing, "; "))
	}
	fmt.Fprintln(d.options.Out, "All pods and alerts reached their expected states.")
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
