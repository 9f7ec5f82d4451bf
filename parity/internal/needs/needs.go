// Package needs lets a test say what it needs of the machine that it runs on.
//
// What is missing skips the test with one line, "needs <what>: <why>; <remedy>". Where CI=true it fails the test
// instead: a suite that skips what it should prove must not be green there.
package needs

import (
	"errors"
	"fmt"
	"os"
)

// TB is what this package uses of a test; every testing.TB is one.
type TB interface {
	// Helper leaves the caller out of the reported line.
	Helper()
	// Skip ends the test as skipped.
	Skip(args ...any)
	// Fatal ends the test as failed.
	Fatal(args ...any)
}

// Root skips the test unless it runs as root.
func Root(t TB) {
	t.Helper()
	require(t, "root", root)
}

// Kubectl skips the test unless kubectl is in PATH.
func Kubectl(t TB) {
	t.Helper()
	require(t, "kubectl", kubectl)
}

// Containers skips the test unless a containerd of its own can run pods on a bridge network here.
func Containers(t TB) {
	t.Helper()
	require(t, "containers", containers...)
}

// CheckContainers is for programs that are no tests: it returns what Containers would say, nil if containers can run here.
func CheckContainers() error {
	if line := missing("containers", containers...); line != "" {
		return errors.New(line)
	}
	return nil
}

// require ends the test if something is missing.
func require(t TB, what string, probes ...func() *lack) {
	t.Helper()
	line := missing(what, probes...)
	switch {
	case line == "":
	case os.Getenv("CI") == "true":
		t.Fatal(line)
	default:
		t.Skip(line)
	}
}

// missing words the first thing that is missing: the later ones often follow from it.
func missing(what string, probes ...func() *lack) string {
	for _, probe := range probes {
		if lacks := probe(); lacks != nil {
			return fmt.Sprintf("needs %s: %s; %s", what, lacks.why, lacks.remedy)
		}
	}
	return ""
}
