package alertmanager_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/parity/internal/needs"
)

// patience ends a test that hangs.
const patience = 5 * time.Minute

const externalURL = "http://n1.example:10248"

const configuration = `
route: {receiver: hook, group_by: [alertname, node], group_wait: 1s, group_interval: 1s, repeat_interval: 4h}
receivers:
- name: hook
  webhook_configs: [{url: "%s", send_resolved: true}]
`

// replica is a real Alertmanager without a cluster. It keeps its data and port over restarts.
type replica struct {
	t       *testing.T
	dir     string
	address string
	command *exec.Cmd
}

// startReplica starts an Alertmanager that forwards to the webhook.
func startReplica(t *testing.T, webhook string) *replica {
	t.Helper()
	needs.Alertmanager(t)
	r := &replica{t: t, dir: t.TempDir(), address: freeAddress(t)}
	if err := os.WriteFile(r.configFile(), fmt.Appendf(nil, configuration, webhook), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	t.Cleanup(r.kill)
	return r
}

func (r *replica) configFile() string { return filepath.Join(r.dir, "alertmanager.yaml") }

func (r *replica) url() string { return "http://" + r.address }

// start starts the process and waits until it answers.
func (r *replica) start() {
	r.t.Helper()
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	r.command = exec.CommandContext(context.WithoutCancel(r.t.Context()), "prometheus-alertmanager",
		"--config.file="+r.configFile(), "--storage.path="+filepath.Join(r.dir, "data"), "--web.listen-address="+r.address,
		"--web.external-url="+externalURL, "--web.route-prefix=/", "--cluster.listen-address=")
	r.command.Stdout, r.command.Stderr = log, log
	r.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.command.Start(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "Alertmanager is ready", func() error {
		_, err := r.get("/-/ready")
		return err
	})
}

// kill ends the process as a crash does. What it had in memory is lost.
func (r *replica) kill() {
	if r.command == nil {
		return
	}
	_ = r.command.Process.Kill()
	_ = r.command.Wait()
	r.command = nil
}

func (r *replica) get(path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url()+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}

// shownAlert is an alert of Alertmanager's API.
type shownAlert struct {
	Labels       alert.Labels      `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
}

// alerts returns the firing alerts by their keys.
func (r *replica) alerts() (map[string]shownAlert, error) {
	body, err := r.get("/api/v2/alerts")
	if err != nil {
		return nil, err
	}
	var all []shownAlert
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	byKey := make(map[string]shownAlert, len(all))
	for _, a := range all {
		byKey[a.Labels.Key()] = a
	}
	return byKey, nil
}

// recorder is a webhook that keeps what it receives.
type recorder struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies = append(r.bodies, body)
	}))
	t.Cleanup(r.Close)
	return r
}

// find waits for the first message that satisfies the condition.
func (r *recorder) find(t *testing.T, what string, condition func(message map[string]any) bool) map[string]any {
	t.Helper()
	var found map[string]any
	eventually(t, what, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, body := range r.bodies {
			var message map[string]any
			if err := json.Unmarshal(body, &message); err != nil {
				return err
			}
			if condition(message) {
				found = message
				return nil
			}
		}
		return fmt.Errorf("not among %d messages: %s", len(r.bodies), r.bodies)
	})
	return found
}

// agent is a Notifier that can be restarted.
type agent struct {
	*notify.Notifier
	t      *testing.T
	folder string
	config notify.Config
	stop   func()
}

func startAgent(t *testing.T, config notify.Config) *agent {
	t.Helper()
	config.NodeName, config.ExternalURL = "n1", externalURL
	a := &agent{t: t, folder: t.TempDir(), config: config, stop: func() {}}
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

func (a *agent) start() {
	a.t.Helper()
	dir, err := checkpoint.Open(a.folder, checkpoint.Options{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.config.Checkpoints = dir
	if a.Notifier, err = notify.New(a.config); err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	notifier := a.Notifier
	go func() { done <- notifier.Run(ctx) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, dir.Close()); err != nil {
			a.t.Error(err)
		}
	})
}

func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// amtool runs Alertmanager's command.
func amtool(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "amtool", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("amtool %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}
