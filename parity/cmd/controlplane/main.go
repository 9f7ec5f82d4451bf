// Command controlplane keeps a real etcd and kube-apiserver running in the foreground, to try things on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/foreground"
)

const usage = `controlplane runs a real etcd and kube-apiserver on loopback until Ctrl-C, to try an agent on.

  go run ./cmd/controlplane [flags]      (in the parity module)

Both are built from their Go modules: about 6 minutes the first time, nothing to do after that. There is no scheduler
and no controller manager: a pod runs on the node that its spec.nodeName says, and no service accounts are made.
Two kubeconfigs are written into the folder, one that may do everything and one with the identity of a node's agent,
system:node:NAME. Ctrl-C stops the servers and removes the folder.

Flags:
`

func main() { foreground.Main("controlplane", run) }

// options are the command line.
type options struct {
	dir       string
	node      string
	buildOnly bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dir, "dir", "", "`folder` for data, logs and kubeconfigs, for example /tmp/herald; it must be empty or not exist,\n"+
		"and is removed in the end (default a new temporary folder)")
	flags.StringVar(&o.node, "node", "herald", "`name` of the Node that is created and that has a kubeconfig")
	flags.BoolVar(&o.buildOnly, "build-only", false, "build the servers, if need be, and exit")
	return o, foreground.Parse(flags, args, usage)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	options, err := parse(args, stderr)
	if err != nil {
		return err
	}
	binaries, err := controlplane.Build(ctx, stderr)
	if err != nil || options.buildOnly {
		return err
	}
	fmt.Fprintln(stderr, "starting etcd and kube-apiserver ...")
	cp, err := controlplane.Start(ctx, controlplane.Config{Binaries: binaries, Dir: options.dir})
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, cp, options.node, stdout), stop(cp, stdout))
}

// serve explains the running control plane and waits for the end of the context.
func serve(ctx context.Context, cp *controlplane.ControlPlane, node string, stdout io.Writer) error {
	if _, err := cp.CreateNode(ctx, node); err != nil {
		return err
	}
	asNode, err := cp.NodeKubeconfig(node)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, `The control plane is ready at %[1]s

As the administrator:
  export KUBECONFIG=%[2]s
  kubectl --kubeconfig %[2]s get ns

As the agent of node %[3]s:
  kubectl --kubeconfig %[4]s get node %[3]s

Logs and data: %[5]s
Ctrl-C stops it and removes that folder.
`, cp.URL(), cp.AdminKubeconfig(), node, asNode, cp.Dir())
	<-ctx.Done()
	return nil
}

func stop(cp *controlplane.ControlPlane, stdout io.Writer) error {
	fmt.Fprintln(stdout, "\nstopping ...")
	if err := cp.Stop(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "etcd and kube-apiserver are stopped, %s is removed\n", cp.Dir())
	return nil
}
