package heraldtest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

const mountNamespaceVariable = "HERALDTEST_MOUNT_NAMESPACE"

// InMountNamespace runs the calling test again in a child process with its own mount namespace, which calls test. Nothing that
// the child mounts is visible elsewhere or remains. The caller must not be a subtest. It skips the test without root.
func InMountNamespace(t *testing.T, test func()) {
	t.Helper()
	if os.Getenv(mountNamespaceVariable) != "" {
		test()
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs a mount namespace; run as root")
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), mountNamespaceVariable+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // Go makes all mounts of the child private
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("in a mount namespace: %v\n%s", err, output)
	}
}
