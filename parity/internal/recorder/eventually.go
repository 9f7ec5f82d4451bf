package recorder

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Patience is how long a test waits for what must happen.
const Patience = time.Minute

// Eventually waits for what should become true, and fails the test with what is instead if it does not within a minute.
func Eventually(t *testing.T, what string, check func() (is string, ok bool)) {
	t.Helper()
	var is string
	ctx := context.WithoutCancel(t.Context())
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		var ok bool
		is, ok = check()
		return ok, nil
	})
	if err != nil {
		t.Fatalf("%s: it is still %s", what, is)
	}
}

// ClientOf is a client for everything that the config's user may do.
func ClientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
