package program

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Kubectl builds the kubectl of the Kubernetes version in go.mod in the user's cache, unless it is up to date, and returns its path and
// its version. The working directory must be inside the parity module.
func Kubectl(ctx context.Context, progress io.Writer) (path, version string, err error) {
	const module = "k8s.io/kubernetes"
	if version, err = Go(ctx, "", "list", "-m", "-f", "{{.Version}}", module); err != nil {
		return "", "", fmt.Errorf("find module %s: %w", module, err)
	}
	dir, unlock, err := LockCacheDir(ctx, "kubectl-"+version, progress)
	if err != nil {
		return "", "", err
	}
	defer unlock()
	path = filepath.Join(dir, "kubectl")
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const variable = " -X k8s.io/component-base/version."
	_, err = GoBuild(ctx, GoBuildConfig{
		Output: path, Packages: []string{module + "/cmd/kubectl"},
		LDFlags: "-s -w" + variable + "gitVersion=" + version + variable + "gitMajor=" + major + variable + "gitMinor=" + minor,
	}, progress)
	return path, version, err
}
