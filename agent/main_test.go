package agent_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/heraldnode/herald/process"
)

var update = flag.Bool("update", false, "rewrite the stories in testdata/scenarios with what happens now")

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	flag.Parse()
	if os.Getenv(machineVariable) != "" {
		os.Exit(runAgentOfMachine())
	}
	goleak.VerifyTestMain(m)
}
