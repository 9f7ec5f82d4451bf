package process

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
)

// Config is what New needs. Fields without a default are required.
type Config struct {
	// Root is the folder of all that the runtime keeps, an absolute path. It is made for its owner alone and held by one
	// server at a time.
	Root string

	// Socket is the absolute path of the unix socket to listen on, for its owner alone. Nothing else can be listened on:
	// whoever may call the server may run commands as the agent's user.
	Socket string

	// Shim is the command that starts the shim; two arguments are appended. The program must call ShimMain first thing
	// when IsShim says so. Usually {"/proc/self/exe"}, which stays right when the program's file is replaced.
	Shim []string

	// PodsRoot is the folder below which the agent writes the files of pods' volumes. Read-only mounts from there are
	// accepted. Default: none are.
	PodsRoot string

	// Logger. Default: silence.
	Logger *slog.Logger
}

// longestSocket is what the kernel's address of a unix socket has room for.
const longestSocket = 107

func (c Config) withDefaults() (Config, error) {
	switch {
	case !filepath.IsAbs(c.Root):
		return c, fmt.Errorf("process: Config.Root is %q: give an absolute path", c.Root)
	case !filepath.IsAbs(c.Socket):
		return c, fmt.Errorf("process: Config.Socket is %q: give the absolute path of a unix socket, nothing else is listened on", c.Socket)
	case len(c.Socket) > longestSocket:
		return c, fmt.Errorf("process: Config.Socket %s has %d bytes: at most %d are possible", c.Socket, len(c.Socket), longestSocket)
	case len(c.Shim) == 0:
		return c, errors.New(`process: Config.Shim is empty: give the command of the shim, such as "/proc/self/exe"`)
	case c.PodsRoot != "" && !filepath.IsAbs(c.PodsRoot):
		return c, fmt.Errorf("process: Config.PodsRoot is %q: give an absolute path", c.PodsRoot)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
