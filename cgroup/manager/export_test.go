package manager

import "context"

// WithKernel makes the Manager create directories by mkdir, which also creates the kernel's files.
func WithKernel(config Config, mkdir func(path string) error) Config {
	config.mkdir = mkdir
	return config
}

// WithSystemd makes the Manager call run instead of systemctl.
func WithSystemd(config Config, run func(arguments ...string) error) Config {
	config.systemd = func(_ context.Context, arguments ...string) error { return run(arguments...) }
	config.isBooted = func() bool { return run != nil }
	return config
}

// Refresh runs one iteration of Run.
func (m *Manager) Refresh(ctx context.Context) error { return m.refresh(ctx) }
