// Command controlplane runs a real etcd and kube-apiserver in the foreground, as a place to try an agent.
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

Both are built from their Go modules, which takes about 6 minutes the first time. There is no scheduler and no controller
manager: a pod runs on the node in its spec.nodeName, and no service accounts are created. The directory gets two
kubeconfigs: one for an administrator and one for a node's agent, system:node:NAME. Ctrl-C stops the servers and removes
the directory.

Flags:
`

func main() { foreground.Main("controlplane", run) }

// options holds the parsed command line.
type options struct {
	dir       string
	node      string
	buildOnly bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dir, "dir", "", "`directory` for data, logs and kubeconfigs, for example /tmp/herald; must be empty or not exist,\n"+
		"and is removed on exit (default a new temporary directory)")
	flags.StringVar(&o.node, "node", "herald", "`name` of the Node to create, with a kubeconfig of its own")
	flags.BoolVar(&o.buildOnly, "build-only", false, "build the servers if necessary, and exit")
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

// serve prints how to use the control plane and waits until ctx is done.
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
Ctrl-C stops it and removes that directory.
`, cp.URL(), cp.AdminKubeconfig(), node, asNode, cp.Dir())
	<-ctx.Done()
	return nil
}

func stop(cp *controlplane.ControlPlane, stdout io.Writer) error {
	fmt.Fprintln(stdout, "\nstopping ...")
	if err := cp.Stop(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "stopped etcd and kube-apiserver, removed %s\n", cp.Dir())
	return nil
}
