package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/program"
)

// Programs are the programs of a conformance run, except for the agent.
type Programs struct {
	ControlPlane      controlplane.Binaries
	ControllerManager string
	Scheduler         string
	// Suite is the test binary of package suite, Ginkgo the command that runs it in several processes.
	Suite, Ginkgo string
	// Agnhost and Nonewprivs are programs of the suite's images. They are statically linked.
	Agnhost, Nonewprivs string
	// Kubectl is the kubectl of the suite's version.
	Kubectl string
	// Kubernetes is the directory of the source of Kubernetes.
	Kubernetes string
	// Shells is the directory of busybox and bash-static; hack/install-shells prints it.
	Shells string
}

const (
	suiteModule      = "conformance/suite" // in the parity module
	kubernetesModule = "k8s.io/kubernetes"
	ginkgoCommand    = "github.com/onsi/ginkgo/v2/ginkgo"
)

// Build builds the programs from their Go modules into the user's cache, which takes about 15 minutes on two cores the first time.
// shells is Programs.Shells. The working directory must be that of the parity module.
func Build(ctx context.Context, shells string, progress io.Writer) (Programs, error) {
	p := Programs{Shells: shells}
	steps := []func(context.Context, io.Writer) error{p.buildControlPlane, p.buildSuite}
	for _, step := range steps {
		if err := step(ctx, progress); err != nil {
			return Programs{}, fmt.Errorf("conformance: %w", err)
		}
	}
	return p, nil
}

func (p *Programs) buildControlPlane(ctx context.Context, progress io.Writer) (err error) {
	if p.ControlPlane, err = controlplane.Build(ctx, progress); err != nil {
		return err
	}
	if p.ControllerManager, err = controlplane.BuildControllerManager(ctx, progress); err != nil {
		return err
	}
	if p.Scheduler, err = controlplane.BuildScheduler(ctx, progress); err != nil {
		return err
	}
	p.Kubectl, _, err = program.Kubectl(ctx, progress)
	return err
}

func (p *Programs) buildSuite(ctx context.Context, progress io.Writer) error {
	found, err := program.Go(ctx, suiteModule, "list", "-m", "-f", "{{.Dir}}\t{{.Version}}", kubernetesModule)
	if err != nil {
		return err
	}
	source, version, _ := strings.Cut(found, "\t")
	dir, unlock, err := program.LockCacheDir(ctx, "conformance-"+version, progress)
	if err != nil {
		return err
	}
	defer unlock()
	p.Kubernetes = source
	p.Suite, p.Ginkgo = filepath.Join(dir, "e2e.test"), filepath.Join(dir, "ginkgo")
	p.Agnhost, p.Nonewprivs = filepath.Join(dir, "agnhost"), filepath.Join(dir, "nonewprivs")
	images := kubernetesModule + "/test/images/"
	for _, build := range []program.GoBuildConfig{
		{Output: p.Ginkgo, Packages: []string{ginkgoCommand}},
		{Output: p.Agnhost, Packages: []string{images + "agnhost"}},
		{Output: p.Nonewprivs, Packages: []string{images + "nonewprivs"}},
	} {
		build.Dir, build.LDFlags, build.Env = suiteModule, "-s -w", []string{"CGO_ENABLED=0"}
		if _, err := program.GoBuild(ctx, build, progress); err != nil {
			return err
		}
	}
	return compileSuite(ctx, p.Suite, progress)
}

// compileSuite is the step that needs much memory, 2 GB for the linker. It has no progress of its own: `go test -c` is silent.
func compileSuite(ctx context.Context, output string, progress io.Writer) error {
	if _, err := os.Stat(output); err != nil {
		fmt.Fprintln(progress, "building Kubernetes' end-to-end tests: several minutes the first time, seconds later on")
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", output, ".")
	command.Dir, command.Stdout, command.Stderr = suiteModule, progress, progress
	if err := command.Run(); err != nil {
		return fmt.Errorf("%v: %w", command.Args, err)
	}
	return nil
}
