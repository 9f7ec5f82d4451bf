package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// guard is a process that outlives the demo, however that ends, and removes what it left. It knows of the end by a pipe, which
// the machine closes for whoever is killed.
type guard struct {
	command *exec.Cmd
	hold    io.Closer
}

// startGuard starts this program once more. In a session of its own it is not hit by what hits the demo: Ctrl-C, a terminal that
// is closed.
func startGuard(ctx context.Context, folder string) (*guard, error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", "demo", "guard", folder)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Dir = "/"
	hold, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the guard: %w", errors.Join(err, hold.Close()))
	}
	return &guard{command, hold}, nil
}

// release lets the guard see to what is left, and waits for it.
func (g *guard) release() error {
	err := g.hold.Close()
	if waited := g.command.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("the guard of the demo: %w", waited))
	}
	return err
}

// Guard is what the guard does: it waits until the demo has ended, and if its folder is still there it ends the pods and removes
// it. Signals do not keep it from that.
func Guard(ctx context.Context, demo io.Reader, folder string) error {
	_, _ = io.Copy(io.Discard, demo)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(endPods(context.WithoutCancel(ctx), folder), os.RemoveAll(folder))
}

// endPods starts an agent in the place of one that was killed. It finds pods that nothing wants any more.
func endPods(ctx context.Context, folder string) error {
	if err := removeManifests(folder); err != nil {
		return err
	}
	node, err := newNode(folder)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = node.Run(ctx) })
	cleared := awaitEmpty(ctx, node)
	stop()
	running.Wait()
	return errors.Join(cleared, failed)
}
