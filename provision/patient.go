package provision

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// forbiddenFor is how long the API server may forbid what a pod refers to before it is believed.
	forbiddenFor = 3 * time.Second
	// forbiddenPause is after how long it is asked again.
	forbiddenPause = 100 * time.Millisecond
)

// patient asks again for what is forbidden. A node may read what its pods refer to, and may learn of a pod before that part
// of the API server does which decides what a node may read.
func patient[T any](
	ask func(ctx context.Context, namespace, name string) (T, error),
) func(ctx context.Context, namespace, name string) (T, error) {
	return func(ctx context.Context, namespace, name string) (T, error) {
		for begun := time.Now(); ; {
			answer, err := ask(ctx, namespace, name)
			if !apierrors.IsForbidden(err) || time.Since(begun) >= forbiddenFor {
				return answer, err
			}
			select {
			case <-time.After(forbiddenPause):
			case <-ctx.Done():
				return answer, err
			}
		}
	}
}
