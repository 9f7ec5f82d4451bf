package demo

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"text/template"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/history"
)

//go:embed pods/*.yaml
var manifests embed.FS

//go:embed rules/demo.yaml
var rules []byte

// manifestValues are the variables of the manifest templates.
type manifestValues struct {
	Program           string
	WebPort, SlowPort int
}

// writeManifests writes the manifests of the pods to a directory.
func writeManifests(dir string, values manifestValues) error {
	templates, err := template.ParseFS(manifests, "pods/*.yaml")
	if err != nil {
		return err
	}
	values.Program = strconv.Quote(values.Program)
	for _, manifest := range templates.Templates() {
		var text bytes.Buffer
		if err := manifest.Execute(&text, values); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, manifest.Name()), text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}

// freePorts returns unused ports of the loopback address.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // held until all are found, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Times since the start of a program at which its behaviour changes.
const (
	webReady     = 3 * time.Second
	webUnready   = 10 * time.Second
	webRecovered = 16 * time.Second
	slowStarted  = 8 * time.Second
	jobCompleted = 4 * time.Second
	crashed      = time.Second
)

// Program runs the program of a pod until ctx ends or it completes.
func Program(ctx context.Context, out io.Writer, name, port string) error {
	switch name {
	case "web":
		return serve(ctx, port, "/ready", func(age time.Duration) bool {
			return age >= webReady && (age < webUnready || age >= webRecovered)
		})
	case "slow":
		return serve(ctx, port, "/started", func(age time.Duration) bool { return age >= slowStarted })
	case "job":
		return sleep(ctx, jobCompleted)
	case "crash":
		if err := sleep(ctx, crashed); err != nil {
			return err
		}
		fmt.Fprintln(out, "cannot open the database: no such host")
		return errors.New("giving up")
	default:
		return fmt.Errorf("the demo has no pod named %q", name)
	}
}

// serve serves a health check at path, which depends on the age of the process, and a greeting at other paths.
func serve(ctx context.Context, port, path string, isHealthy func(age time.Duration) bool) error {
	started := time.Now()
	var visitors atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		if !isHealthy(time.Since(started)) {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "Hello, visitor %d.\n", visitors.Add(1))
	})
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: mux, ReadHeaderTimeout: time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// expectedStates lists the states that each pod reaches, in order.
var expectedStates = map[string][]expectedState{
	"web":   {{"becomes ready", isReady}, {"becomes unready", isRunningUnready}, {"becomes ready again", isReady}},
	"slow":  {{"runs unready", isRunningUnready}, {"becomes ready after its startup probe", isReady}},
	"job":   {{"runs", isRunning}, {"completes", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded }}},
	"crash": {{"backs off after a crash", isCrashLooping}},
}

type expectedState struct {
	text      string
	isReached func(*v1.Pod) bool
}

func isRunning(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

func isRunningUnready(p *v1.Pod) bool { return isRunning(p) && !isReady(p) }

func isCrashLooping(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	})
}

// expectedChanges lists what happens to the alerts of the demo, in order.
var expectedChanges = map[string][]string{"WebNotReady": {"firing", "resolved"}, "CrashBackOff": {"firing", "snapshot dry-run"}}

// progress is the number of states that each pod and each alert has reached.
type progress map[string]int

// updateAlerts updates the progress of alerts with a record of an alert or an action.
func (p progress) updateAlerts(record *history.Record) {
	name, change := describeRecord(record)
	if changes := expectedChanges[name]; p[name] < len(changes) && changes[p[name]] == change {
		p[name]++
	}
}

// describeRecord returns the alert of a record, and what happened.
func describeRecord(record *history.Record) (name, change string) {
	switch {
	case record.Alert != nil:
		return record.Alert.Labels[alert.LabelName], string(record.Alert.State)
	case record.Action != nil:
		return record.Action.Rule, record.Action.Type + " " + record.Action.Decision
	default:
		return "", ""
	}
}

func (p progress) update(pod *v1.Pod) {
	for name, states := range expectedStates {
		if next := p[name]; pod.Name == name+"-"+nodeName && next < len(states) && states[next].isReached(pod) {
			p[name]++
		}
	}
}

// missing returns the states that have not been reached.
func (p progress) missing() []string {
	var missing []string
	for name, states := range expectedStates {
		for _, state := range states[p[name]:] {
			missing = append(missing, fmt.Sprintf("%s %s", name, state.text))
		}
	}
	for name, changes := range expectedChanges {
		for _, change := range changes[p[name]:] {
			missing = append(missing, fmt.Sprintf("alert %s: %s", name, change))
		}
	}
	slices.Sort(missing)
	return missing
}
