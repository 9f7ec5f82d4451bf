package manager

import (
	"context"
	"fmt"
	"strings"
)

// WithKernel makes the Manager create directories by mkdir, which also creates the kernel's files.
func WithKernel(config Config, mkdir func(path string) error) Config {
	config.mkdir = mkdir
	return config
}

// WithSystemd makes the Manager call run instead of systemd, which does not run if run is nil.
func WithSystemd(config Config, run func(call string) error) Config {
	config.systemd = fakeSystemd(run)
	return config
}

// fakeSystemd receives each call as a line.
type fakeSystemd func(call string) error

func (f fakeSystemd) isRunning() bool { return f != nil }

func (f fakeSystemd) setSlice(_ context.Context, slice string, properties []property) error {
	words := []string{"set", slice}
	for _, p := range properties {
		words = append(words, fmt.Sprint(p.name, "=", p.value))
	}
	return f(strings.Join(words, " "))
}

func (f fakeSystemd) stopSlice(_ context.Context, slice string) error { return f("stop " + slice) }

// WithHungSystemd makes systemd run without ever answering.
func WithHungSystemd(config Config) Config {
	config.systemd = hungSystemd{}
	return config
}

type hungSystemd struct{}

func (hungSystemd) isRunning() bool { return true }

func (hungSystemd) setSlice(ctx context.Context, _ string, _ []property) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hungSystemd) stopSlice(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// StopSlice calls the systemd that listens on the socket.
func StopSlice(ctx context.Context, socket, slice string) error {
	return systemd{socket: socket}.stopSlice(ctx, slice)
}

// Refresh runs one iteration of Run.
func (m *Manager) Refresh(ctx context.Context) error { return m.refresh(ctx) }
