package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/server"
)

// Options say how the demo goes.
type Options struct {
	// For ends the demo after that time, and makes it fail if the pods have not come to what they should. Zero: it goes on
	// until ctx ends.
	For time.Duration
	Out io.Writer
}

// Run shows the demo. It returns when all that it started has ended, and nothing of it is left.
func Run(ctx context.Context, options Options) (err error) {
	folder, err := os.MkdirTemp("", "herald-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the demo: %w\nName a place where you may write with TMPDIR", err)
	}
	if err := server.CheckAddress("unix://" + filepath.Join(dataOf(folder), "process.sock")); err != nil {
		return errors.Join(fmt.Errorf("%w\nName a folder with a shorter name with TMPDIR", err), os.RemoveAll(folder))
	}
	guard, err := startGuard(ctx, folder)
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	defer func() { err = errors.Join(err, guard.release()) }()
	d := &demo{folder: folder, options: options, reached: progress{}}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return d.show(ctx)
}

type demo struct {
	folder   string
	options  Options
	node     *nodeagent.NodeAgent
	listener net.Listener
	reached  progress
}

func (d *demo) prepare(ctx context.Context) error {
	if err := os.Mkdir(manifestsOf(d.folder), 0o700); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which the pods run: %w", err)
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return err
	}
	err = writeManifests(manifestsOf(d.folder), values{Program: program, WebPort: ports[0], SlowPort: ports[1]})
	if err != nil {
		return err
	}
	if d.node, err = newNode(d.folder); err != nil {
		return err
	}
	if d.listener, err = server.Listen(ctx, "127.0.0.1:0"); err != nil {
		return errors.Join(err, d.node.Close())
	}
	return nil
}

// command is what to type for this program.
func command() string {
	path, err := os.Executable()
	byName := !strings.Contains(os.Args[0], "/") // and so found by the shell
	if err != nil || byName || strings.ContainsAny(path, " \t\n'\"\\$`&;|<>()*?[]#~!{}") {
		return "herald"
	}
	return path
}

func (d *demo) head() []string {
	return []string{
		"Herald runs four pods here as plain processes: no containers, cluster or root.",
		"  edit   " + filepath.Join(manifestsOf(d.folder), "web.yaml"),
		"  ask    " + command() + " get pods -w -s " + d.listener.Addr().String(),
		"         curl http://" + d.listener.Addr().String() + "/pods",
		"  end    Ctrl-C; nothing is left behind",
		"",
	}
}

// show runs the agent, shows its pods until it is time to end, and ends them all.
func (d *demo) show(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	answers, err := server.New(server.Config{Agent: d.node.Agent})
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	ended := make(chan error, 1)
	parts.Go(func() { ended <- d.node.Run(running) })
	parts.Go(func() { _ = answers.Serve(running, d.listener) })

	failed := d.watch(ctx, ended)
	cleared := d.clear(running)
	stop()
	parts.Wait()
	if cleared == nil {
		cleared = os.RemoveAll(d.folder)
	}
	return errors.Join(failed, cleared)
}

// watch shows the pods until the demo is over, and says what did not happen in a demo with an end.
func (d *demo) watch(interrupted context.Context, ended <-chan error) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(interrupted)
	if d.options.For > 0 {
		ctx, cancel = context.WithTimeout(interrupted, d.options.For)
	}
	changes, stopped := make(chan watch.Event), make(chan struct{})
	go d.follow(ctx, changes, stopped)
	defer func() {
		cancel()
		<-stopped
	}()
	screen := newScreen(d.options.Out, d.head())
	defer screen.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !screen.gone {
		screen.draw(d.node.Agent.LocalPods(), d.node.Events.Recent(), time.Now())
		select {
		case err := <-ended:
			return fmt.Errorf("the agent has ended: %w", err)
		case <-ctx.Done():
			return d.verdict(interrupted.Err() != nil)
		case change := <-changes:
			d.reached.see(change.Object.(*v1.Pod))
			screen.tell(change, time.Since(began), time.Now())
		case <-screen.resized:
		case <-tick.C:
		}
	}
	return errors.New("nobody reads this any more")
}

// follow sends what happens to the pods, until ctx ends.
func (d *demo) follow(ctx context.Context, changes chan<- watch.Event, stopped chan<- struct{}) {
	defer close(stopped)
	for change := range d.node.Agent.WatchLocalPods(ctx) {
		select {
		case changes <- change:
		case <-ctx.Done():
		}
	}
}

func (d *demo) verdict(interrupted bool) error {
	switch missing := d.reached.missing(); {
	case d.options.For == 0:
		return nil
	case len(missing) > 0 && interrupted:
		return fmt.Errorf("interrupted before this happened: %s", strings.Join(missing, "; "))
	case len(missing) > 0:
		return fmt.Errorf("in %v this did not happen: %s", d.options.For, strings.Join(missing, "; "))
	}
	fmt.Fprintln(d.options.Out, "All pods came to what they should.")
	return nil
}

// clear removes the manifests and waits until the node has got rid of all pods.
func (d *demo) clear(ctx context.Context) error {
	fmt.Fprintln(d.options.Out, "Ending the pods...")
	if err := removeManifests(d.folder); err != nil {
		return err
	}
	if err := awaitEmpty(ctx, d.node); err != nil {
		return err
	}
	fmt.Fprintln(d.options.Out, "Nothing is left.")
	return nil
}
