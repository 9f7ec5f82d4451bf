package alertmanager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/process"
)

// agentVariable makes the test binary run an agent with this configuration.
const agentVariable = "HERALD_TEST_ALERTING_AGENT"

// agentFiles are the files of an agent that is a process of its own.
type agentFiles struct{ Data, Manifests, Rules, Webhook string }

func TestMain(m *testing.M) {
	if process.IsShim() {
		process.ShimMain()
	}
	if text := os.Getenv(agentVariable); text != "" {
		if err := runAgent(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runAgent(text string) error {
	var files agentFiles
	if err := json.Unmarshal([]byte(text), &files); err != nil {
		return err
	}
	n, err := nodeagent.New(nodeagent.Config{
		NodeName: "n1", DataDir: files.Data, StaticPodPath: files.Manifests, Runtime: nodeagent.RuntimeProcess, MaxPods: 50,
		NodeIPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Alerting: nodeagent.AlertingConfig{
			RuleFiles: []string{files.Rules}, NoDefaults: true, Webhooks: []notify.Webhook{{Name: "hook", HTTP: notify.HTTP{URL: files.Webhook}}},
		},
	})
	if err != nil {
		return err
	}
	return n.Run(context.Background())
}

// moment is when the agent is killed: around a request about an alert.
type moment struct {
	status string // of the alert in the request; empty: before any request
	when   string
}

const (
	beforeAnswer = "before the answer" // the receiver has heard it, the agent does not know
	insteadOf    = "instead of one"    // the receiver has not accepted it
	afterAnswer  = "after the answer"  // whether the agent has saved the answer is a matter of luck
	whenSaved    = "when it is saved"
	afterChange  = "after the change" // the agent may have noticed it, or evaluated, or recorded it
)

var moments = []moment{
	{"", afterChange}, {"firing", insteadOf}, {"firing", beforeAnswer}, {"firing", afterAnswer}, {"firing", whenSaved},
	{"resolved", insteadOf}, {"resolved", beforeAnswer}, {"resolved", afterAnswer}, {"resolved", afterChange},
}

// heard is a message that the receiver has accepted.
type heard struct {
	status   string
	startsAt time.Time
	isAcked  bool // it was answered, too
}

// killer is a webhook that kills the agent at given moments.
type killer struct {
	t      *testing.T
	files  agentFiles
	server *httptest.Server

	running sync.Mutex // guards command; held until the process has ended
	command *exec.Cmd

	mu    sync.Mutex // guards all below
	at    map[string]moment
	heard map[string][]heard
	kills chan string
}

func newKiller(t *testing.T) *killer {
	t.Helper()
	data, err := os.MkdirTemp("", "herald") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{t: t, at: map[string]moment{}, heard: map[string][]heard{}, kills: make(chan string, len(moments))}
	k.server = httptest.NewServer(http.HandlerFunc(k.serve))
	k.files = agentFiles{Data: data, Manifests: t.TempDir(), Rules: t.TempDir(), Webhook: k.server.URL}
	t.Cleanup(func() {
		k.kill()
		k.server.Close()
		_ = os.RemoveAll(data)
	})
	return k
}

// serve notes the alerts of a message, and kills the agent if it is time to.
func (k *killer) serve(w http.ResponseWriter, request *http.Request) {
	var message struct {
		Alerts []struct {
			Status   string            `json:"status"`
			Labels   map[string]string `json:"labels"`
			StartsAt time.Time         `json:"startsAt"`
		} `json:"alerts"`
	}
	if err := json.NewDecoder(request.Body).Decode(&message); err != nil {
		k.t.Error(err)
	}
	for _, a := range message.Alerts {
		name := a.Labels["alertname"]
		k.mu.Lock()
		now := k.at[name]
		isTime := now.status == a.Status
		if isTime {
			delete(k.at, name)
		}
		if !isTime || now.when != insteadOf {
			k.heard[name] = append(k.heard[name], heard{a.Status, a.StartsAt, !isTime || now.when != beforeAnswer})
		}
		k.mu.Unlock()
		if !isTime {
			continue
		}
		switch now.when {
		case beforeAnswer:
			k.kill()
		case insteadOf:
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = http.NewResponseController(w).Flush()
			k.kill()
		case afterAnswer:
			_ = http.NewResponseController(w).Flush()
			k.kill()
		}
		k.kills <- name
	}
}

// start starts the agent as a process.
func (k *killer) start() {
	k.t.Helper()
	text, err := json.Marshal(k.files)
	if err != nil {
		k.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(k.files.Data, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	command := exec.CommandContext(context.Background(), os.Args[0])
	command.Env = append(os.Environ(), agentVariable+"="+string(text))
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.running.Lock()
	defer k.running.Unlock()
	k.command = command
}

// kill kills the agent and waits for its end. Its pods go on.
func (k *killer) kill() {
	k.running.Lock()
	defer k.running.Unlock()
	if k.command != nil {
		_ = k.command.Process.Signal(syscall.SIGKILL)
		_ = k.command.Wait()
		k.command = nil
	}
}

func (k *killer) await(name string) {
	k.t.Helper()
	select {
	case <-k.kills:
	case <-time.After(patience):
		log, _ := os.ReadFile(filepath.Join(k.files.Data, "log"))
		k.t.Fatalf("%s: no message; log of the agent:\n%s", name, log)
	}
}

const endlessPod = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: host, command: [sleep, "900"]}]
`

// A1 and A2 hold for the whole agent, wherever it is killed between the evaluation of a rule and the answer of the receiver.
func TestA1A2_AgentKilledAtEveryStep(t *testing.T) {
	k := newKiller(t)
	k.writeRules()
	k.start()
	for i, m := range moments {
		name := fmt.Sprintf("Round%d", i)
		manifest := filepath.Join(k.files.Manifests, fmt.Sprintf("r%d.yaml", i))
		k.mu.Lock()
		k.at[name] = m
		k.mu.Unlock()
		if err := os.WriteFile(manifest, fmt.Appendf(nil, endlessPod, fmt.Sprintf("r%d", i)), 0o600); err != nil {
			t.Fatal(err)
		}
		k.killDuringFiring(name, m)
		if err := os.Remove(manifest); err != nil { // while the agent does not run, or runs again
			t.Fatal(err)
		}
		k.killDuringResolved(name, m)
	}
	for i := range moments {
		name := fmt.Sprintf("Round%d", i)
		eventually(t, name+" is resolved", func() error {
			k.mu.Lock()
			defer k.mu.Unlock()
			if all := k.heard[name]; len(all) == 0 || all[len(all)-1].status != "resolved" {
				return fmt.Errorf("heard %v", all)
			}
			return nil
		})
	}
	k.kill()
	k.check()
}

func (k *killer) writeRules() {
	k.t.Helper()
	var text strings.Builder
	text.WriteString("apiVersion: heraldnode.github.io/v1alpha1\nkind: AlertRules\ngroups:\n- name: test\n  rules:\n")
	for i := range moments {
		fmt.Fprintf(&text, "  - {alert: Round%d, on: pod, expr: \"pod.name.startsWith('r%d-') && pod.phase == 'Running'\"}\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(k.files.Rules, "rules.yaml"), []byte(text.String()), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// killDuringFiring kills the agent while the alert begins to fire, or only waits until it does.
func (k *killer) killDuringFiring(name string, m moment) {
	k.t.Helper()
	switch {
	case m.status == "":
		k.kill()
		k.start()
		k.waitForFiring(name)
	case m.status == "firing" && m.when != whenSaved:
		k.await(name)
		k.kill()
		if m.when != afterAnswer { // then it stays down while its pod is removed
			k.start()
			k.waitForFiring(name)
		}
	case m.when == whenSaved:
		k.await(name)
		eventually(k.t, "the acknowledgement is saved", func() error {
			if !k.isSaved(name) {
				return fmt.Errorf("%s is not in the checkpoint", name)
			}
			return nil
		})
		k.kill()
	default:
		k.waitForFiring(name)
	}
}

// killDuringResolved kills the agent while the alert is resolved, if that is the moment, and starts it if it does not run.
func (k *killer) killDuringResolved(name string, m moment) {
	k.t.Helper()
	if m.status == "resolved" {
		if m.when != afterChange {
			k.await(name)
		} else {
			k.mu.Lock()
			delete(k.at, name)
			k.mu.Unlock()
		}
		k.kill()
	}
	k.running.Lock()
	isRunning := k.command != nil
	k.running.Unlock()
	if !isRunning {
		k.start()
	}
}

func (k *killer) waitForFiring(name string) {
	k.t.Helper()
	eventually(k.t, name+" fires", func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, h := range k.heard[name] {
			if h.isAcked {
				return nil
			}
		}
		log, _ := os.ReadFile(filepath.Join(k.files.Data, "log"))
		return fmt.Errorf("heard %v; log of the agent:\n%s", k.heard[name], log)
	})
}

// isSaved reports whether the checkpoint has an acknowledgement of the alert.
func (k *killer) isSaved(name string) bool {
	matches, err := filepath.Glob(filepath.Join(k.files.Data, "*", "notify"))
	if err != nil {
		return false
	}
	for _, file := range append(matches, filepath.Join(k.files.Data, "notify")) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			_, after, found := strings.Cut(line, `"alertname":"`+name+`"`)
			if found && strings.Contains(after, `"webhook/hook":{"status":"firing"`) {
				return true
			}
		}
	}
	return false
}

// check checks what the receiver has heard.
func (k *killer) check() {
	k.t.Helper()
	for name, all := range k.heard {
		isAcked := false
		for _, h := range all {
			if h.status == "resolved" && !isAcked {
				k.t.Errorf("A2: %s: resolved before firing was acknowledged: %v", name, all)
			}
			if !h.startsAt.Equal(all[0].startsAt) {
				k.t.Errorf("A5: %s: the start has changed: %v", name, all)
			}
			isAcked = isAcked || h.status == "firing" && h.isAcked
		}
		k.t.Logf("%s: %d messages", name, len(all))
	}
}
