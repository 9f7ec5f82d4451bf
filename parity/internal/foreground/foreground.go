// Package foreground is shared by the commands that run a server until Ctrl-C.
package foreground

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the command until it returns or Ctrl-C is pressed, and exits: with 0 on success, 2 after a usage error, 1 after any
// other error.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore) // a second Ctrl-C ends this process immediately; the supervisor still cleans up
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// errUsage is an error that was already printed.
var errUsage = errors.New("invalid usage")

// Parse parses a command line that consists of flags only. It prints errors and --help to the output of the flag set.
func Parse(flags *flag.FlagSet, args []string, usage string) error {
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(flags.Output(), "%s: unexpected arguments %q; try --help\n", flags.Name(), flags.Args())
		return errUsage
	}
	return nil
}
