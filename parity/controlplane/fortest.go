package controlplane

import (
	"os"
	"testing"
)

// ForTest starts a control plane for one test and stops it when the test ends. If the test fails, the ends of the servers'
// logs are in its output. Packages with many tests share one instead: call [Build] and [Start] in TestMain.
func ForTest(tb testing.TB) *ControlPlane {
	tb.Helper()
	binaries, err := Build(tb.Context(), os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	cp, err := Start(tb.Context(), Config{Binaries: binaries})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the end of etcd's log:\n%s", cp.Etcd.LogTail())
			tb.Logf("the end of kube-apiserver's log:\n%s", cp.APIServer.LogTail())
		}
		if err := cp.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return cp
}
