// Command containerd keeps a real containerd with a network of its own running in the foreground, to try an agent on.
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

const usage = `containerd runs the containerd of this machine's PATH until Ctrl-C, as an instance of its own to try an agent on: own root,
socket and bridge network, nothing of the system's. It needs root.

  go run ./cmd/containerd [flags]      (in the parity module)

No registry is needed: it has the image ` + containerd.TestpodImage + `, whose program serves, works, crashes and fails probes
as it is told. Ctrl-C removes every pod, and everything else that it has made.

Flags:
`

func main() { foreground.Main("containerd", run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("containerd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	folder := flags.String("dir", "", "`folder` for all that it keeps; it must be empty or not exist, and is removed in the end\n"+
		"(default a new temporary folder)")
	if err := foreground.Parse(flags, args, usage); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("running containers needs root: try sudo")
	}
	fmt.Fprintln(stderr, "starting containerd ...")
	c, err := containerd.Start(ctx, containerd.Config{Folder: *folder})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, `containerd is ready at %[1]s

For an agent:
  herald run --runtime-endpoint %[1]s ...

Its image, for pods: %[2]s
Ctrl-C stops it and removes every pod and %[3]s.
`, c.Endpoint(), containerd.TestpodImage, c.Folder())
	<-ctx.Done()
	fmt.Fprintln(stdout, "\nstopping ...")
	return c.Close()
}
