package process_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/heraldnode/herald/process"
)

// serverWord makes the test binary a server that can be killed: serverWord ROOT SOCKET.
const serverWord = "test-server"

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if len(os.Args) == 4 && os.Args[1] == serverWord {
		if err := serve(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func serve(root, socket string) error {
	shim, err := shimCommand()
	if err != nil {
		return err
	}
	server, err := process.New(process.Config{Root: root, Socket: socket, Shim: shim})
	if err != nil {
		return err
	}
	return server.Run(context.Background())
}

// shimCommand is the test binary, without the second that a program with the race detector takes to end.
func shimCommand() ([]string, error) {
	program, err := os.Executable()
	return []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", program}, err
}
