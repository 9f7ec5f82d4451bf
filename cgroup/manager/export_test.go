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

// Refresh runs one iteration of Run.
func (m *Manager) Refresh(ctx context.Context) error { return m.refresh(ctx) }
