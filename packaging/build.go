package packaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Build builds the program from the repository and writes the packages to the directory output.
func Build(ctx context.Context, release Release, repository, output string) error {
	stage, err := os.MkdirTemp("", "herald-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	binary := filepath.Join(stage, "herald")
	if err := compile(ctx, release, repository, binary); err != nil {
		return err
	}
	host := binary
	if release.Arch != runtime.GOARCH { // a program of this machine writes manual pages and completions
		local := release
		local.Arch, host = runtime.GOARCH, filepath.Join(stage, "host", "herald")
		if err := compile(ctx, local, repository, host); err != nil {
			return err
		}
	}
	if err := generate(ctx, host, stage); err != nil {
		return err
	}
	modules, err := ReadModules(ctx, binary, repository, repository)
	if err != nil {
		return err
	}
	return Package(release, Input{Repository: repository, Stage: stage, Modules: modules}, output)
}

// compile builds the program so that nothing of this machine is in it.
func compile(ctx context.Context, release Release, repository, binary string) error {
	const variables = "github.com/heraldnode/herald/cmd/herald/internal/cli."
	link := fmt.Sprintf("-s -w -buildid= -X %srelease=v%s -X %[1]sreleaseCommit=%s", variables, release.Version, release.Commit)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", link, "-o", binary, "./cmd/herald")
	cmd.Dir, cmd.Env = repository, environment(release.Arch)
	return run(cmd)
}

// environment returns the environment without the user's settings of the compiler.
func environment(arch string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
}

// completions are the files that the shells read, by the name of the shell.
var completions = map[string]string{"bash": "herald.bash", "zsh": "_herald", "fish": "herald.fish"}

// generate writes the manual pages and completions of the program to the stage.
func generate(ctx context.Context, program, stage string) error {
	if err := run(heraldCommand(ctx, program, "man", filepath.Join(stage, "man"))); err != nil {
		return err
	}
	for shell, file := range completions {
		script, err := heraldCommand(ctx, program, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(stage, file), script, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// heraldCommand returns a command whose help does not depend on the user's environment.
func heraldCommand(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err), errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}
