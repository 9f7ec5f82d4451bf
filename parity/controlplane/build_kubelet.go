package controlplane

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// BuildKubelet makes the kubelet of the API server's version, as Build makes the control plane, and returns its path. After
// Build it takes about two minutes more the first time.
func BuildKubelet(ctx context.Context, progress io.Writer) (string, error) {
	kubelet, err := buildKubelet(ctx, progress)
	if err != nil {
		return "", fmt.Errorf("build the kubelet: %w", err)
	}
	return kubelet, nil
}

// buildKubelet needs no stamp: one program that is up to date takes the go command a second.
func buildKubelet(ctx context.Context, progress io.Writer) (string, error) {
	module, err := findModule(ctx)
	if err != nil {
		return "", err
	}
	dir, unlock, err := module.cache(ctx, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	start := time.Now()
	kubelet := filepath.Join(dir, "kubelet")
	compiled, err := module.goBuild(ctx, kubelet, []string{kubernetesModule + "/cmd/kubelet"}, progress)
	if err == nil && compiled > 0 {
		fmt.Fprintf(progress, "built the kubelet %s in %v\n", module.kubernetes, time.Since(start).Round(time.Second))
	}
	return kubelet, err
}
