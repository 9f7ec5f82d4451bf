package deed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/internal/permission"
)

// Program is a program that rules may run by its name. It gets the facts as JSON on its standard input and nothing else: no shell, no
// arguments of rules, no environment variables.
type Program struct {
	Name string
	// Path is absolute. Only root and the agent's user may be able to modify the program and the directories above it.
	Path string
	Args []string
	// User is the name of the user that it runs as, if the agent runs as root. Default: nobody.
	User string
}

const (
	programTimeout = 10 * time.Second
	maxOutput      = 64 << 10
	defaultUser    = "nobody"
)

// Check returns what is wrong with the program, or nil.
func (p *Program) Check() error {
	if p.Name == "" {
		return errors.New("a program needs a name")
	}
	if !filepath.IsAbs(p.Path) || filepath.Clean(p.Path) != p.Path {
		return fmt.Errorf("program %s: %q must be absolute, and must not contain dots as directories", p.Name, p.Path)
	}
	if err := p.checkFiles(); err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	if _, err := p.credential(); err != nil {
		return fmt.Errorf("program %s: %w", p.Name, err)
	}
	return nil
}

// checkFiles checks the program and all directories above it, also behind links.
func (p *Program) checkFiles() error {
	target, err := filepath.EvalSymlinks(p.Path)
	if err != nil {
		return err
	}
	info, err := os.Stat(target)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", target)
	}
	checker := permission.New("run programs as the agent")
	for _, path := range []string{p.Path, target} {
		for ; ; path = filepath.Dir(path) {
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			isSticky := info.IsDir() && info.Mode()&os.ModeSticky != 0 // as /tmp: others cannot replace what is in it
			isLink := info.Mode()&os.ModeSymlink != 0                  // replaced only by who can write its directory
			if !isSticky && !isLink {
				if err := checker.CheckFile(path); err != nil {
					return err
				}
			}
			if path == filepath.Dir(path) {
				break
			}
		}
	}
	return nil
}

// credential returns the user to run as; nil if the agent is not root, and cannot change it.
func (p *Program) credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		if p.User != "" {
			return nil, errors.New("a user is possible only if the agent runs as root")
		}
		return nil, nil //nolint:nilnil // the agent's own user
	}
	name := p.User
	if name == "" {
		name = defaultUser
	}
	account, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// run runs a program of the configuration.
func (d *Deeds) run(ctx context.Context, request action.Request) (string, error) {
	program, found := d.programs[request.Target]
	if !found {
		return "", fmt.Errorf("%w: the agent's configuration has no program %q", action.ErrRefused, request.Target)
	}
	input, err := d.facts(ctx, request)
	if err != nil {
		return "", err
	}
	return program.run(ctx, input)
}

// run returns the last line of the output. The files are checked again: they may have changed since the configuration was read.
func (p *Program) run(ctx context.Context, input []byte) (string, error) {
	if err := p.checkFiles(); err != nil {
		return "", fmt.Errorf("%w: %w", action.ErrRefused, err)
	}
	credential, err := p.credential()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	output := &limitedBuffer{left: maxOutput}
	command := exec.CommandContext(ctx, p.Path, p.Args...) //nolint:gosec // of the configuration, which only root can write
	command.Env = []string{}                               // nil would inherit the agent's
	command.Dir = "/"
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err = command.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", fmt.Errorf("not finished within %s", programTimeout)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output.lastLine())
	}
	return "exit code 0: " + output.lastLine(), nil
}

// limitedBuffer keeps the first bytes that are written to it.
type limitedBuffer struct {
	bytes.Buffer
	left int
}

// Write never fails, so that the program does not notice the limit.
func (b *limitedBuffer) Write(data []byte) (int, error) {
	kept := min(len(data), b.left)
	b.left -= kept
	b.Buffer.Write(data[:kept])
	return len(data), nil
}

func (b *limitedBuffer) lastLine() string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(b.String(), "?")), "\n")
	return lines[len(lines)-1]
}
