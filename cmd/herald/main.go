// Command herald runs the pods of one machine and reports their status.
package main

import (
	"os"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/process"
)

func main() {
	if process.IsShim() { // started by the process runtime as the supervisor of a container
		process.ShimMain()
	}
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
