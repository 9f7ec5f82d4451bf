package certificate_test

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldnode/herald/certificate"
)

// Environment variables of a child process: the test binary, which saves a certificate and kills itself at a step.
const (
	stepEnv = "CERTIFICATE_TEST_STEP"
	dirEnv  = "CERTIFICATE_TEST_DIR"
)

func TestMain(m *testing.M) {
	if os.Getenv(stepEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := saveAndCrash(os.Getenv(dirEnv), os.Getenv(stepEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// saveAndCrash saves the pair in the directory and kills the process at the step.
func saveAndCrash(dir, step string) error {
	last, err := strconv.Atoi(step)
	if err != nil {
		return err
	}
	cert, certErr := os.ReadFile(filepath.Join(dir, "new.crt"))
	key, keyErr := os.ReadFile(filepath.Join(dir, "new.key"))
	if err := errors.Join(certErr, keyErr); err != nil {
		return err
	}
	store := certificate.NewStore(dir, "kubelet-client")
	steps := 0
	store.SetStep(func() {
		if steps++; steps == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	return store.Save(cert, key, time.Now())
}

// save saves a certificate with this name.
func save(t *testing.T, dir, name string, at time.Time) {
	t.Helper()
	cert, key := named(t, name)
	if err := certificate.NewStore(dir, "kubelet-client").Save(cert, key, at); err != nil {
		t.Fatal(err)
	}
}

func loadName(t *testing.T, dir string) string {
	t.Helper()
	pair, savedAt, err := certificate.NewStore(dir, "kubelet-client").Load()
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(savedAt) > time.Hour || savedAt.IsZero() {
		t.Errorf("saved at %v", savedAt)
	}
	return pair.Leaf.Subject.CommonName
}

func pems(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "kubelet-client-2*.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// After a crash at any step, the current certificate is the old or the new one, and the next one can be saved.
func TestCRT15_Crash(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sawOld, sawNew := 0, 0
	for step := 1; ; step++ {
		if step > 20 {
			t.Fatal("Save does not end")
		}
		dir := t.TempDir()
		save(t, dir, "oldest", start)
		save(t, dir, "old", start.Add(time.Hour))
		cert, key := named(t, "new")
		write(t, filepath.Join(dir, "new.crt"), cert)
		write(t, filepath.Join(dir, "new.key"), key)
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), dirEnv+"="+dir, fmt.Sprintf("%s=%d", stepEnv, step), "GORACE=atexit_sleep_ms=0")
		child.Stderr = os.Stderr
		err := child.Run()
		var exit *exec.ExitError
		isKilled := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if err != nil && !isKilled {
			t.Fatal(err)
		}
		switch name := loadName(t, dir); name {
		case "old":
			sawOld++
		case "new":
			sawNew++
		default:
			t.Errorf("step %d: got %s", step, name)
		}
		save(t, dir, "newest", start.Add(2*time.Hour))
		if name := loadName(t, dir); name != "newest" {
			t.Errorf("step %d: got %s after the next one was saved", step, name)
		}
		if files := pems(t, dir); len(files) != 2 {
			t.Errorf("step %d: got %v, want the current one and its predecessor", step, files)
		}
		if !isKilled {
			break
		}
	}
	if sawOld < 3 || sawNew < 2 {
		t.Errorf("got the old certificate after %d crashes and the new one after %d", sawOld, sawNew)
	}
}

func TestCRT15_Layout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	save(t, dir, "first", at)
	save(t, dir, "second", at) // of the same second
	target, err := os.Readlink(filepath.Join(dir, "kubelet-client-current.pem"))
	if err != nil || target != filepath.Join(dir, "kubelet-client-2026-01-02-03-04-05-2.pem") {
		t.Errorf("got %s, %v", target, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, target: 0o600, dir + "/kubelet-client-2026-01-02-03-04-05.pem": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v", path, info, err)
		}
	}
	content, err := os.ReadFile(target)
	if err != nil || strings.Index(string(content), "BEGIN CERTIFICATE") > strings.Index(string(content), "PRIVATE KEY") {
		t.Errorf("got %s, %v, want the certificate before its key", content, err)
	}
}

// What a kubelet or an operator may have left is read, and replaced by the next certificate.
func TestCRT15_Found(t *testing.T) {
	pemOf := func(t *testing.T, name string) []byte {
		t.Helper()
		cert, key := named(t, name)
		return append(cert, key...)
	}
	for name, leave := range map[string]func(t *testing.T, dir string){
		"a link that was not renamed": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "kubelet-client-2026-01-01-00-00-00.pem"), pemOf(t, "found"))
			if err := os.Symlink(filepath.Join(dir, "kubelet-client-2026-01-01-00-00-00.pem"), filepath.Join(dir, "kubelet-client-updated.pem")); err != nil {
				t.Fatal(err)
			}
		},
		"a plain file": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "kubelet-client-current.pem"), pemOf(t, "found"))
		},
		"separate files": func(t *testing.T, dir string) {
			cert, key := named(t, "found")
			write(t, filepath.Join(dir, "kubelet-client.crt"), cert)
			write(t, filepath.Join(dir, "kubelet-client.key"), key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			leave(t, dir)
			if got := loadName(t, dir); got != "found" {
				t.Errorf("got %s", got)
			}
			save(t, dir, "next", time.Now())
			if got := loadName(t, dir); got != "next" {
				t.Errorf("got %s after the next one was saved", got)
			}
		})
	}
}

func TestCRT15_Rejected(t *testing.T) {
	dir := t.TempDir()
	store := certificate.NewStore(dir, "kubelet-client")
	if _, _, err := store.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of an empty directory", err)
	}
	write(t, filepath.Join(dir, "kubelet-client-current.pem"), []byte("garbage"))
	if _, _, err := store.Load(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of garbage", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // the point of the test
		t.Fatal(err)
	}
	cert, key := named(t, "a")
	if err := store.Save(cert, key, time.Now()); err == nil {
		t.Error("saved in a directory that any user can modify")
	}
}

func TestCRT6_PendingKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	store := certificate.NewStore(dir, "kubelet-client")
	if _, err := store.LoadPending(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v of an empty directory", err)
	}
	_, key := named(t, "a")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kubelet-client.key.tmp"), key) // as the kubelet leaves it
	loaded, err := store.LoadPending()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SavePending(loaded); err != nil {
		t.Fatal(err)
	}
	if again, err := store.LoadPending(); err != nil || !loaded.(*ecdsa.PrivateKey).Equal(again) {
		t.Errorf("got %v, %v", again, err)
	}
	if err := errors.Join(store.RemovePending(), store.RemovePending()); err != nil {
		t.Error(err)
	}
}

// An agent that crashed after it saved its certificate finds the key of the request, and knows that it is over.
func TestCRT6_CrashAfterSave(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.start(t)
		pending := filepath.Join(n.dir, "kubelet-client.key.tmp")
		key, err := os.ReadFile(pending)
		if err != nil {
			t.Fatal(err)
		}
		n.sign(n.last(), time.Hour)
		synctest.Wait()
		n.shutdown()
		write(t, pending, key)
		n.start(t)
		if _, err := os.Stat(pending); !os.IsNotExist(err) {
			t.Errorf("the key is still there: %v", err)
		}
		n.requireRequests(t, 1)
	})
}
