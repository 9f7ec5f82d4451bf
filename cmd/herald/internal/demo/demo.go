package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/assembly"
	"github.com/heraldnode/herald/server"
)

// Options say how the demo goes.
type Options struct {
	// For ends the demo after that time, and makes it fail if the pods have not come to what they should. Zero: it goes on
	// until ctx ends.
	For time.Duration
	Out io.Writer
}

// nodeName is appended to the names of the pods.
const nodeName = "demo"

// Run shows the demo. It returns when all that it started has ended, and nothing of it is left.
func Run(ctx context.Context, options Options) (err error) {
	folder, err := os.MkdirTemp("", "herald-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	d := &demo{folder: folder, options: options, reached: progress{}}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return d.show(ctx)
}

type demo struct {
	folder   string
	options  Options
	node     *assembly.Node
	listener net.Listener
	reached  progress
}

func (d *demo) manifests() string { return filepath.Join(d.folder, "manifests") }

func (d *demo) prepare(ctx context.Context) error {
	if err := os.Mkdir(d.manifests(), 0o700); err != nil {
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
	if err := writeManifests(d.manifests(), values{Program: program, WebPort: ports[0], SlowPort: ports[1]}); err != nil {
		return err
	}
	d.node, err = assembly.New(assembly.Config{
		NodeName: nodeName, DataDir: filepath.Join(d.folder, "data"), StaticPodPath: d.manifests(),
		Runtime: assembly.RuntimeProcess, NodeIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	})
	if err != nil {
		return err
	}
	d.listener, err = server.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, d.node.Close())
	}
	return nil
}

func (d *demo) head() string {
	address := d.listener.Addr()
	return fmt.Sprintf(`Herald runs four pods here, as plain processes: no containers, no cluster, no root.
  manifests   %s   (edit one, and see)
  ask         herald get pods --server %s -w
              curl http://%s/pods
  end         Ctrl-C leaves nothing behind

`, d.manifests(), address, address)
}

// show runs the agent, shows its pods until it is time to end, and ends them all.
func (d *demo) show(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	answers, err := server.New(server.Config{Node: d.node.Agent})
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	ended := make(chan error, 1)
	parts.Go(func() { ended <- d.node.Run(running) })
	parts.Go(func() { _ = answers.Serve(running, d.listener) })

	failed := d.watch(ctx, ended)
	cleared := d.clear()
	stop()
	parts.Wait()
	return errors.Join(failed, cleared)
}

// watch shows the pods until the demo is over, and says what did not happen in a demo with an end.
func (d *demo) watch(ctx context.Context, ended <-chan error) error {
	began := time.Now()
	if d.options.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.options.For)
		defer cancel()
	}
	screen := newScreen(d.options.Out, d.head())
	screen.clear()
	changes := make(chan *v1.Pod)
	go func() {
		for change := range d.node.Agent.LocalChanges(ctx) {
			select {
			case changes <- change.Object.(*v1.Pod):
			case <-ctx.Done():
			}
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the agent has ended: %w", err)
		case <-ctx.Done():
			return d.verdict()
		case p := <-changes:
			d.reached.see(p)
			screen.tell(p, time.Since(began), time.Now())
		case <-tick.C:
		}
		screen.draw(d.node.Agent.LocalPods(), time.Now())
		if screen.gone {
			return errors.New("nobody reads this any more")
		}
	}
}

func (d *demo) verdict() error {
	if d.options.For == 0 {
		return nil
	}
	if missing := d.reached.missing(); len(missing) > 0 {
		return fmt.Errorf("in %v this did not happen: %s", d.options.For, strings.Join(missing, "; "))
	}
	fmt.Fprintln(d.options.Out, "All pods came to what they should.")
	return nil
}

// clearTimeout is how long the pods may take to end.
const clearTimeout = 20 * time.Second

// clear removes the manifests and waits until the node has got rid of all pods.
func (d *demo) clear() error {
	fmt.Fprintln(d.options.Out, "Ending the pods...")
	files, err := filepath.Glob(filepath.Join(d.manifests(), "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	deadline := time.NewTimer(clearTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if len(d.node.Agent.LocalPods()) == 0 {
			fmt.Fprintln(d.options.Out, "Nothing is left.")
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("some pods have not ended in %v; see %s", clearTimeout, d.folder)
		case <-tick.C:
		}
	}
}
