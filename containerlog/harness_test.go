package containerlog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/containerlog"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// node is a directory of logs and the state of one pod.
type node struct {
	t    *testing.T
	dir  string
	logs *containerlog.Logs

	mu    sync.Mutex
	state observed.Pod
	// reported are the paths that the runtime reports.
	reported map[string]string
	wake     chan podid.UID
}

const uid = "7d1c2a4e-1111-2222-3333-444455556666"

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: filepath.Join(t.TempDir(), "pods"), wake: make(chan podid.UID, 10)}
	config := containerlog.Config{
		Dir: n.dir, Paths: n, Pods: n,
		Changes: func(ctx context.Context) iter.Seq[podid.UID] {
			return func(yield func(podid.UID) bool) {
				for {
					select {
					case <-ctx.Done():
						return
					case uid := <-n.wake:
						if !yield(uid) {
							return
						}
					}
				}
			}
		},
	}
	config.SetPoll(20 * time.Millisecond)
	var err error
	if n.logs, err = containerlog.New(config); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(n.path("web", 0)), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// run runs the watcher until the test ends or the function is called.
func (n *node) run() (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.logs.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	n.t.Cleanup(stop)
	return stop
}

func (n *node) path(container string, attempt int) string {
	return n.LogPath(newPod(), container, attempt)
}

func (n *node) LogPath(pod *v1.Pod, container string, attempt int) string {
	return filepath.Join(n.dir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), container, strconv.Itoa(attempt)+".log")
}

func (n *node) ContainerLogPath(_ context.Context, id string) (string, error) {
	if path, found := n.reported[id]; found {
		return path, nil
	}
	return "", errors.New("not found")
}

func (n *node) Get(podid.UID) *observed.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	state := n.state
	return &state
}

// set makes the container of an ID have this state.
func (n *node) set(id string, attempt int, state observed.State) {
	n.mu.Lock()
	n.state = observed.Pod{At: time.Now(), Containers: []observed.Container{{
		ID: observed.ContainerID{Runtime: "test", ID: id}, Name: "web", RestartCount: attempt, State: state,
	}}}
	n.mu.Unlock()
}

// write appends entries to a log. Lines of text become entries of stdout.
func (n *node) write(path, content string) {
	n.t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err == nil {
		_, err = file.WriteString(content)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		n.t.Fatal(err)
	}
}

// rotate renames the log as cri.RotateLogs does, and compresses the renamed one if asked to.
func (n *node) rotate(path, time string, compress bool) {
	n.t.Helper()
	rotated := path + "." + time
	if err := os.Rename(path, rotated); err != nil {
		n.t.Fatal(err)
	}
	if compress {
		n.compress(rotated)
	}
}

func (n *node) compress(path string) {
	n.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	_, err = writer.Write(content)
	if err := errors.Join(err, writer.Close(), os.WriteFile(path+".gz", compressed.Bytes(), 0o644), os.Remove(path)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) open(options *v1.PodLogOptions) (*containerlog.Stream, error) {
	if options.Container == "" {
		options.Container = "web"
	}
	return n.logs.Open(n.t.Context(), newPod(), options)
}

// read returns the log.
func (n *node) read(options v1.PodLogOptions) string {
	n.t.Helper()
	stream, err := n.open(&options)
	if err != nil {
		n.t.Fatal(err)
	}
	defer stream.Close()
	return n.copy(stream)
}

func (n *node) copy(stream *containerlog.Stream) string {
	n.t.Helper()
	var output bytes.Buffer
	if err := stream.Copy(n.t.Context(), &output, nil); err != nil {
		n.t.Fatal(err)
	}
	return output.String()
}

func newPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "default", UID: uid},
		Spec: v1.PodSpec{
			Containers:          []v1.Container{{Name: "web"}},
			InitContainers:      []v1.Container{{Name: "init"}},
			EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
		},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "web", ContainerID: "test://1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}},
	}
}

// at returns the time of the second after noon, as runtimes write it.
func at(second int) string {
	return time.Date(2026, 1, 2, 12, 0, second, 5, time.UTC).Format(time.RFC3339Nano)
}

// entries returns entries from lines "<second> <stream> <tag> <text>".
func entries(lines ...string) string {
	var log strings.Builder
	for _, line := range lines {
		second, rest, _ := strings.Cut(line, " ")
		number, err := strconv.Atoi(second)
		if err != nil {
			panic(err)
		}
		log.WriteString(at(number) + " " + rest + "\n")
	}
	return log.String()
}
