// Package foreground is what commands share that run a server until Ctrl-C.
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

// Main runs the command until it ends or Ctrl-C is pressed, and exits: 0 if all went well, 2 after a wrong command line, which
// was already explained, 1 after any other error.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore) // a second Ctrl-C ends this process at once; the leash still cleans up
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

var errUsage = errors.New("wrong usage")

// Parse reads a command line that has flags only. What is wrong with it is explained on the set's output, as is --help.
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
		fmt.Fprintf(flags.Output(), "%s takes no arguments, and has %q; try --help\n", flags.Name(), flags.Args())
		return errUsage
	}
	return nil
}
