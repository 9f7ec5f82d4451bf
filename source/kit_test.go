package source_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

func TestMain(m *testing.M) {
	os.Setenv("HTTP_PROXY", "http://127.0.0.1:1/") // which nothing here may use; read once, so it is set at the start
	goleak.VerifyTestMain(m)
}

const node = "n1"

// pod makes a pod of this node; uid is also its image, so that another UID is another content.
func pod(name, uid string, edits ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: uid}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func version(rv string) func(*v1.Pod) { return func(p *v1.Pod) { p.ResourceVersion = rv } }
func image(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Containers[0].Image = name } }
func phase(is v1.PodPhase) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.Phase = is }
}
func annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}
func deleted(p *v1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	p.DeletionGracePeriodSeconds = new(int64)
}

// scripted is a source that says what the test tells it to.
type scripted struct {
	name podid.Source
	sink chan source.Sink
	fail error // what Run returns at once, if anything
}

func newScripted(name podid.Source) *scripted {
	return &scripted{name: name, sink: make(chan source.Sink, 1)}
}

func (s *scripted) Name() podid.Source { return s.name }

func (s *scripted) Run(ctx context.Context, sink source.Sink) error {
	s.sink <- sink
	if s.fail != nil {
		return s.fail
	}
	<-ctx.Done()
	return nil
}

// written is an Update in a form that a test can compare: FILE ADD web/u1 db/u2.
func written(u source.Update) string {
	words := []string{string(u.Source), u.Op.String()}
	for _, p := range u.Pods {
		words = append(words, p.Name+"/"+string(p.UID))
	}
	return strings.Join(words, " ")
}

// decode reads the tests' own manifests: a line for each pod, its name and its version. "none" says no pods.
func decode(data []byte, origin manifest.Origin) ([]*v1.Pod, error) {
	text := strings.TrimSpace(string(data))
	switch text {
	case "":
		return nil, manifest.Errors{{Location: origin.Location, Err: manifest.ErrEmpty}}
	case "none":
		return nil, nil
	}
	var pods []*v1.Pod
	for i, line := range strings.Split(text, "\n") {
		name, uid, ok := strings.Cut(line, " ")
		if !ok || name == "" || uid == "" {
			return nil, manifest.Errors{{
				Location: origin.Location, Line: i + 1, Field: "metadata", Err: errors.New("want a name and a version"),
			}}
		}
		pods = append(pods, pod(name, name+"-"+uid))
	}
	return pods, nil
}

// recorder is a Sink that keeps what it is told, and lets a test wait for it.
type recorder struct {
	mu       sync.Mutex // guards all below
	changed  chan struct{}
	sets     int
	reports  int
	pods     []*v1.Pod
	problems []source.Problem
	history  []string // the pods of each set
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{})} }

func (r *recorder) Replace(pods []*v1.Pod) {
	r.update(func() {
		r.sets++
		r.pods = pods
		r.history = append(r.history, names(pods))
	})
}

func (r *recorder) Apply(changed []*v1.Pod, gone []types.UID) {
	r.update(func() {
		for _, p := range changed {
			gone = append(gone, p.UID)
		}
		r.pods = slices.DeleteFunc(slices.Clone(r.pods), func(p *v1.Pod) bool { return slices.Contains(gone, p.UID) })
		r.pods = append(r.pods, changed...)
	})
}

func (r *recorder) Report(problems []source.Problem) {
	r.update(func() {
		r.reports++
		r.problems = problems
	})
}

func (r *recorder) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// wait blocks until what was told satisfies the test.
func (r *recorder) wait(t *testing.T, what string, satisfied func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		r.mu.Lock()
		done, changed := satisfied(), r.changed
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("waited in vain for %s; have %d sets, pods %q, problems:\n%s",
				what, r.sets, names(r.pods), texts(r.problems))
		}
	}
}

func (r *recorder) waitPods(t *testing.T, want string) {
	t.Helper()
	r.wait(t, fmt.Sprintf("pods %q", want), func() bool { return r.sets > 0 && names(r.pods) == want })
}

func (r *recorder) waitProblem(t *testing.T, part string) {
	t.Helper()
	r.wait(t, fmt.Sprintf("problem with %q", part), func() bool { return strings.Contains(texts(r.problems), part) })
}

func (r *recorder) waitNoProblem(t *testing.T) {
	t.Helper()
	r.wait(t, "no problem", func() bool { return len(r.problems) == 0 })
}

// waitReports blocks until the source has reported so many times in all: each look at a file or a URL ends with one.
func (r *recorder) waitReports(t *testing.T, count int) {
	t.Helper()
	r.wait(t, fmt.Sprintf("%d reports", count), func() bool { return r.reports >= count })
}

func (r *recorder) told() (sets int, pods string, problems string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sets, names(r.pods), texts(r.problems)
}

// names lists UIDs, which in these tests say name and version.
func names(pods []*v1.Pod) string {
	uids := make([]string, 0, len(pods))
	for _, p := range pods {
		uids = append(uids, string(p.UID))
	}
	slices.Sort(uids)
	return strings.Join(uids, " ")
}

func texts(problems []source.Problem) string {
	lines := make([]string, 0, len(problems))
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// start runs a source until the test ends, and records what it tells.
func start(t *testing.T, s source.Source) *recorder {
	t.Helper()
	sink := newRecorder()
	run(t, s, sink)
	return sink
}

// run runs a source until the test ends.
func run(t *testing.T, s source.Source, sink source.Sink) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx, sink); err != nil {
			t.Errorf("source %s: %v", s.Name(), err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
