// Command containerd runs a real containerd with its own network in the foreground, as a place to try an agent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/foreground"
)

const usage = `containerd runs a containerd until Ctrl-C, as a private instance to try an agent on. It has its own root directory,
socket and bridge network and does not touch the system's containerd. It needs root. It is the containerd from PATH, or
with ` + containerd.VersionEnv + `=2 a containerd 2.x that is built from its Go module.

  go run ./cmd/containerd [flags]      (in the parity module)

No registry is needed: the image ` + containerd.TestpodImage + ` is preloaded. Its program can serve, work, crash and fail
probes, as its arguments say. Ctrl-C removes every pod and everything else that this command created.

Flags:
`

func main() { foreground.Main("containerd", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("containerd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "`directory` for all data; must be empty or not exist, and is removed on exit\n"+
		"(default a new temporary directory)")
	buildOnly := flags.Bool("build-only", false, "build containerd 2 if necessary, and exit")
	if err := foreground.Parse(flags, args, usage); err != nil {
		return err
	}
	if *buildOnly {
		_, err := containerd.Build(ctx, stderr)
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("running containers requires root: try sudo")
	}
	fmt.Fprintln(stderr, "starting containerd ...")
	c, err := containerd.Start(ctx, containerd.Config{Dir: *dir})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, `containerd is ready at %[1]s

For an agent:
  herald run --runtime-endpoint %[1]s ...

Image for pods: %[2]s
Ctrl-C stops containerd and removes every pod and %[3]s.
`, c.Endpoint(), containerd.TestpodImage, c.Dir())
	<-ctx.Done()
	fmt.Fprintln(stdout, "\nstopping ...")
	return c.Close()
}
