package deed_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/action"
	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/cri"
	"github.com/heraldnode/herald/deed"
	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/notify"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/remedy"
	"github.com/heraldnode/herald/view"
)

// onePod is an Inspector of a node with one pod. Its restarts and probes are tested with a real node in package nodeagent.
type onePod struct{ pod *v1.Pod }

func (o onePod) Facts(context.Context, podid.FullName) (explain.Facts, bool) {
	return explain.Facts{Name: podid.FullNameOf(o.pod), Pod: o.pod}, true
}

func (o onePod) Pod(ctx context.Context, name podid.FullName) (view.PodView, bool) {
	facts, _ := o.Facts(ctx, name)
	return view.NewPod(facts), true
}

func (onePod) Node(context.Context) view.NodeView { return view.NodeView{Kind: "NodeView"} }

func (onePod) AddLoads([]view.PodView) {}

func (onePod) RestartByAction(context.Context, podid.FullName, string, string) (view.Restart, error) {
	return view.Restart{}, errors.ErrUnsupported
}

func (onePod) CheckProbe(context.Context, podid.FullName, string, explain.ProbeKind) ([]view.ProbeCheck, error) {
	return nil, errors.ErrUnsupported
}

func newRequest(kind remedy.Type, target string) action.Request {
	return action.Request{
		ID: 17, Type: kind, Target: target, Object: remedy.Object{Namespace: "shop", Pod: "web"},
		Alert: alert.Alert{Labels: alert.Labels{alert.LabelName: "Stuck"}, State: alert.Firing},
	}
}

func newDeeds(t *testing.T, change func(*deed.Config)) *deed.Deeds {
	t.Helper()
	pod := heraldtest.NewPod("web")
	pod.Namespace = "shop"
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "main", ContainerID: "test://1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}
	config := deed.Config{NodeName: "n1", Inspector: onePod{pod}}
	change(&config)
	deeds, err := deed.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return deeds
}

func TestWebhook(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code := http.StatusOK
	var body []byte
	var signature string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		signature = r.Header.Get(notify.SignatureHeader)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"action":"restart-pod"}`)) // never an instruction
	}))
	defer server.Close()
	deeds := newDeeds(t, func(c *deed.Config) {
		c.Webhooks = []notify.Webhook{{Name: "ops", HTTP: notify.HTTP{URL: server.URL}, SecretFile: secret}}
	})
	if _, err := deeds.Do(t.Context(), newRequest(remedy.Webhook, "ops")); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind, Node, Type string
		ID               int
		Alert            alert.Alert
		Pod              view.PodView
	}
	if err := json.Unmarshal(body, &got); err != nil || got.ID != 17 || got.Node != "n1" || got.Pod.Metadata.Name != "web" ||
		got.Alert.Labels[alert.LabelName] != "Stuck" || got.Kind != "ActionRequest" {
		t.Errorf("got %s, %v, want the facts", body, err)
	}
	at, sum, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	mac := hmac.New(sha256.New, []byte("key"))
	mac.Write(append([]byte(at+":"), body...))
	if want := hex.EncodeToString(mac.Sum(nil)); sum != want {
		t.Errorf("got signature %q, want %q", signature, want)
	}
	code = http.StatusInternalServerError
	if _, err := deeds.Do(t.Context(), newRequest(remedy.Webhook, "ops")); err == nil || errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a failure", err)
	}
	if _, err := deeds.Do(t.Context(), newRequest(remedy.Webhook, "other")); !errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a refusal of a target that is not configured", err)
	}
}

// nodeAPI is an API server with one node, for what a real one does not always track: who owns a field.
type nodeAPI struct {
	deed.API
	node    v1.Node
	patches []string
}

func (a *nodeAPI) GetNode(context.Context, string) (*v1.Node, error) { return a.node.DeepCopy(), nil }

func (a *nodeAPI) PatchNodeAs(_ context.Context, _, _ string, patch []byte) (*v1.Node, error) {
	a.patches = append(a.patches, string(patch))
	return &a.node, nil
}

// TestR6_Ownership: if somebody else has set unschedulable since, the node stays as it is, and only the annotation goes.
func TestR6_Ownership(t *testing.T) {
	fields := func(manager string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{
			{Manager: "herald-actions", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{}}}`)},
			{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)},
		}
	}
	for manager, isUndone := range map[string]bool{"herald-actions": true, "kubectl-cordon": false, "": true} {
		api := &nodeAPI{node: v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1", Annotations: map[string]string{deed.CordonAnnotation: "x"}},
			Spec:       v1.NodeSpec{Unschedulable: true},
		}}
		if manager != "" {
			api.node.ManagedFields = fields(manager)
		}
		deeds := newDeeds(t, func(c *deed.Config) { c.API = api })
		if _, err := deeds.Do(t.Context(), newRequest(remedy.Uncordon, "")); err != nil {
			t.Fatal(err)
		}
		if len(api.patches) != 1 || strings.Contains(api.patches[0], "unschedulable") != isUndone || !strings.Contains(api.patches[0], "annotations") {
			t.Errorf("%q: got %q", manager, api.patches)
		}
	}
}

func newProgram(t *testing.T, text string) deed.Program {
	t.Helper()
	dir := t.TempDir()
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) { // the user nobody must reach it
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // as programs have it
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return deed.Program{Name: "fix", Path: path, Args: []string{"a b", "$HOME"}}
}

// TestRun checks what a program sees: fixed arguments, facts, no environment, and another user.
func TestRun(t *testing.T) {
	t.Setenv("HERALD_TEST_SECRET", "x")
	program := newProgram(t, `cat >/dev/null; echo first; echo "$#:$1:$2:${HERALD_TEST_SECRET-none}:$(/usr/bin/id -un)"`)
	deeds := newDeeds(t, func(c *deed.Config) { c.Programs = []deed.Program{program} })
	message, err := deeds.Do(t.Context(), newRequest(remedy.Run, "fix"))
	want := "exit code 0: 2:a b:$HOME:none:"
	if os.Geteuid() == 0 {
		want += "nobody"
	}
	if err != nil || !strings.HasPrefix(message, want) {
		t.Errorf("got %q, %v, want %q", message, err, want)
	}
	if _, err := deeds.Do(t.Context(), newRequest(remedy.Run, "/bin/true")); !errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a refusal of a program that is not configured", err)
	}
	if err := os.Chmod(program.Path, 0o777); err != nil { //nolint:gosec // the point of the test
		t.Fatal(err)
	}
	if _, err := deeds.Do(t.Context(), newRequest(remedy.Run, "fix")); !errors.Is(err, action.ErrRefused) {
		t.Errorf("got %v, want a refusal of a program that everybody can write", err)
	}
}

func TestRun_Input(t *testing.T) {
	program := newProgram(t, `/bin/cat | /usr/bin/tr -d '\n' | /usr/bin/cut -c 1-90; exit 3`)
	deeds := newDeeds(t, func(c *deed.Config) { c.Programs = []deed.Program{program} })
	_, err := deeds.Do(t.Context(), newRequest(remedy.Run, "fix"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), `"kind":"ActionRequest","id":17`) {
		t.Errorf("got %v, want the exit code, and the facts that it read", err)
	}
}

func TestNew_Programs(t *testing.T) {
	good := newProgram(t, "")
	for name, change := range map[string]func(*deed.Program){
		"relative":  func(p *deed.Program) { p.Path = "program" },
		"missing":   func(p *deed.Program) { p.Path += "2" },
		"directory": func(p *deed.Program) { p.Path = filepath.Dir(p.Path) },
		"no name":   func(p *deed.Program) { p.Name = "" },
		"user":      func(p *deed.Program) { p.User = "no-such-user" },
	} {
		program := good
		change(&program)
		if _, err := deed.New(deed.Config{NodeName: "n1", Inspector: onePod{heraldtest.NewPod("web")}, Programs: []deed.Program{program}}); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestSnapshot_Bounds checks that a snapshot of data that cannot be compressed stays within 1 MiB, and all of them within 32 MiB.
func TestSnapshot_Bounds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	noise := make([]byte, 4<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	deeds := newDeeds(t, func(c *deed.Config) {
		c.SnapshotDir = dir
		pod := c.Inspector.(onePod).pod
		for i := range 30 {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: "c" + strconv.Itoa(i), ContainerID: "test://2"})
		}
		c.Logs = func(_ *v1.Pod, _ string, _, _, bytes int) (string, error) { return string(noise[:bytes]), nil }
		c.Details = func(context.Context, string) (cri.Details, error) {
			return cri.Details{JSON: noise, PID: os.Getpid()}, nil
		}
	})
	for i := range 40 {
		request := newRequest(remedy.Snapshot, "")
		request.ID = uint64(i)
		if _, err := deeds.Do(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		if info.Size() > 1<<20 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %d bytes and mode %v", entry.Name(), info.Size(), info.Mode())
		}
	}
	if total > 32<<20 || len(entries) < 30 {
		t.Errorf("got %d snapshots of %d bytes, want at most 32 MiB, and not much less", len(entries), total)
	}
}

func TestSnapshot_Content(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	deeds := newDeeds(t, func(c *deed.Config) {
		c.SnapshotDir = dir
		c.Logs = func(*v1.Pod, string, int, int, int) (string, error) { return "hello\n", nil }
		c.Details = func(context.Context, string) (cri.Details, error) {
			return cri.Details{JSON: []byte("{}"), PID: os.Getpid()}, nil
		}
	})
	message, err := deeds.Do(t.Context(), newRequest(remedy.Snapshot, ""))
	if err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(message, ",")
	files := readArchive(t, path)
	pid := strconv.Itoa(os.Getpid())
	for _, name := range []string{"alert.json", "pod.json", "explain.json", "logs/main.log", "runtime/main.json", "processes/main/" + pid + "/status"} {
		if len(files[name]) == 0 {
			t.Errorf("got no %s in %s", name, path)
		}
	}
	if got := files["logs/main.log"]; got != "hello\n" {
		t.Errorf("got log %q", got)
	}
	request := newRequest(remedy.Snapshot, "")
	request.Object = remedy.Object{}
	if message, err = deeds.Do(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	path, _, _ = strings.Cut(message, ",")
	if got := readArchive(t, path)["node.json"]; !strings.Contains(got, "NodeView") {
		t.Errorf("got %q of the node", got)
	}
	for name := range files {
		if strings.HasSuffix(name, "environ") || strings.HasSuffix(name, "cmdline") {
			t.Errorf("got %s, which may contain secrets", name)
		}
	}
}

func readArchive(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", path, err))
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}
