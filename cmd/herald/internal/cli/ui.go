package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/heraldnode/herald/server"
	"github.com/heraldnode/herald/server/page"
)

func newUICommand() *cobra.Command {
	var flags agentFlags
	var address string
	var mayAct bool
	command := &cobra.Command{
		Use: "ui", Short: "Show the node in a browser", GroupID: groupAsk, Args: noArguments,
		Long: `Serve a page with the pods, alerts and load of this node, and print its address. The page is live, and says how old its data is.

The page is served by this command, on a loopback address and until Ctrl-C; the agent opens no port. It can see and do what
the user of this command can. The address contains a code that one browser can use within a minute; press Enter for
another one. From another machine, forward the port: ssh -L 10270:127.0.0.1:10270 node.`,
		Example: `  # Look at the node.
  sudo herald ui

  # Also restart containers, check probes and silence alerts.
  sudo herald ui --act --address 127.0.0.1:10270`,
	}
	flags.bind(command)
	command.Flags().StringVar(&address, "address", "127.0.0.1:0", "loopback address of the page; port 0 is a free one")
	command.Flags().BoolVar(&mayAct, "act", false, "let the page restart containers, check probes and silence alerts")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		if err := server.CheckAddress(address); err != nil {
			return usageErrorf("--address: %w", err)
		}
		ctx, stop := withSignals(cmd.Context())
		defer stop()
		return serveUI(ctx, cmd, &flags, address, mayAct)
	}
	return command
}

func serveUI(ctx context.Context, cmd *cobra.Command, flags *agentFlags, address string, mayAct bool) error {
	agent := flags.client()
	if _, err := agent.Node(ctx); err != nil { // say it here, not in the browser
		return err
	}
	shell, err := page.New(agent.Proxy())
	if err != nil {
		return err
	}
	listener, err := server.Listen(ctx, address)
	if err != nil {
		return fmt.Errorf("%w\nUse another address with --address", err)
	}
	printAddress := func() {
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "http://%s/#c=%s\n", listener.Addr(), shell.NewCode(mayAct))
	}
	printAddress()
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "One browser can use this address within a minute. Enter prints another one, Ctrl-C ends.")
	go readLines(cmd.InOrStdin(), printAddress)
	return server.Serve(ctx, listener, nil, shell, slog.New(slog.DiscardHandler))
}

// readLines calls handle for each line of the input, until it ends.
func readLines(input io.Reader, handle func()) {
	for lines := bufio.NewScanner(input); lines.Scan(); {
		handle()
	}
}
