package recorder

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Eventually waits until check reports true, and fails the test with its last description after Timeout.
func Eventually(t *testing.T, what string, check func() (is string, ok bool)) {
	t.Helper()
	var is string
	ctx := context.WithoutCancel(t.Context())
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, Timeout, true, func(context.Context) (bool, error) {
		var ok bool
		is, ok = check()
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: still %s", what, is)
	}
}
