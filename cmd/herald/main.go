// Command herald runs the pods of one machine, and tells how they are.
package main

import (
	"os"

	"github.com/heraldnode/herald/cmd/herald/internal/cli"
	"github.com/heraldnode/herald/process"
)

func main() {
	if process.IsShim() { // this program, as the supervisor of one container of the process runtime
		process.ShimMain()
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
