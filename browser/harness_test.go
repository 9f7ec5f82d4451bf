package browser_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "write screenshots to this folder")

// patience ends tests that hang. Nothing is measured with it.
const patience = 2 * time.Minute

var herald string // the program under test

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "herald-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	herald = filepath.Join(dir, "herald")
	build := exec.CommandContext(context.Background(), "go", "build", "-C", "..", "-o", herald, "./cmd/herald")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build herald: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// node is an agent that runs pods as processes.
type node struct {
	t    *testing.T
	dir  string
	stop func()
}

func newNode(t *testing.T, manifests map[string]string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb") //nolint:usetesting // a short path: it has sockets
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir}
	if err := os.Mkdir(filepath.Join(dir, "pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range manifests {
		n.write(name, content)
	}
	t.Cleanup(n.remove)
	n.start()
	return n
}

func (n *node) write(name, content string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, "pods", name+".yaml"), []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) address() string { return "unix://" + n.dir + "/state/herald.sock" }

// start starts the agent and waits until it answers.
func (n *node) start() {
	n.t.Helper()
	command := exec.CommandContext(n.t.Context(), herald, "run", "--runtime=process", "--node-name=n1",
		"--manifests", filepath.Join(n.dir, "pods"), "--data-dir", filepath.Join(n.dir, "state"))
	command.Stderr = n.t.Output()
	if err := command.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.stop = sync.OnceFunc(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	eventually(n.t, func() error {
		_, err := n.herald("status")
		return err
	})
}

func (n *node) herald(args ...string) (string, error) {
	out, err := exec.CommandContext(n.t.Context(), herald, append(args, "--server", n.address())...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("herald %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// remove ends the pods and the agent. The context of the test has ended by then.
func (n *node) remove() {
	entries, _ := filepath.Glob(filepath.Join(n.dir, "pods", "*"))
	for _, entry := range entries {
		_ = os.Remove(entry)
	}
	restarted := exec.Command(herald, "run", "--runtime=process", "--node-name=n1", //nolint:noctx // the test's context has ended
		"--manifests", filepath.Join(n.dir, "pods"), "--data-dir", filepath.Join(n.dir, "state"))
	n.stop()
	if restarted.Start() == nil { // ends the pods whose manifests are gone
		deadline := time.Now().Add(patience)
		for time.Now().Before(deadline) {
			if left, err := os.ReadDir(filepath.Join(n.dir, "state", "process", "containers")); err == nil && len(left) == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		_ = restarted.Process.Kill()
		_ = restarted.Wait()
	}
	_ = os.RemoveAll(n.dir)
}

func eventually(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startUI runs herald ui and returns the address that it prints.
func startUI(t *testing.T, address string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), herald, append([]string{"ui", "--server", address}, args...)...)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		t.Fatal("herald ui printed no address")
	}
	return lines.Text()
}

// tab is a page in Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // chromedp identifies the tab by it

	mu       sync.Mutex // guards both
	problems []string   // errors of the console, violations of the policy
	requests []string   // addresses
}

func newTab(t *testing.T, options ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: apt-get install chromium")
	}
	options = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-background-networking", true), chromedp.WindowSize(1200, 800)), options...)
	allocator, cancelAllocator := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancelAllocator)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Run(ctx); err != nil { // starts the browser, which ends with the context of this call
		t.Fatal(err)
	}
	chromedp.ListenTarget(ctx, b.note)
	b.run(network.Enable(), log.Enable())
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, event.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		b.problems = append(b.problems, event.Entry.Text+" "+event.Entry.URL)
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, event.Request.URL)
	}
}

// findings returns the problems and requests so far.
func (b *tab) findings() (problems, requests []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.problems...), append([]string{}, b.requests...)
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// value evaluates a JavaScript expression.
func value[T any](b *tab, expression string) (result T) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &result))
	return result
}

// wait waits until a JavaScript expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	eventually(b.t, func() error {
		if !value[bool](b, expression) {
			return fmt.Errorf("%s is false; the page: %s", expression, value[string](b, "`hidden ${document.hidden}, ${performance.getEntriesByType(\"resource\").length} resources: ${document.body.innerText}`"))
		}
		return nil
	})
}

func (b *tab) open(address string) {
	b.t.Helper()
	b.run(chromedp.Navigate(address))
}

// screenshot writes what is shown, if the flag says where.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	var image []byte
	b.run(chromedp.CaptureScreenshot(&image))
	if err := errors.Join(os.MkdirAll(*screenshots, 0o750), os.WriteFile(filepath.Join(*screenshots, name+".png"), image, 0o600)); err != nil {
		b.t.Fatal(err)
	}
}
