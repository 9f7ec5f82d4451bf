package diff_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/parity/internal/kubelet"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
)

// batch is one delivery in a form that can be compared.
type batch struct {
	Op, Source string
	Pods       []string // UID and the compared fields
}

func describePods(pods []*v1.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s name=%s image=%s label=%s phase=%s deleted=%v source=%s",
			p.UID, p.Name, p.Spec.Containers[0].Image, p.Labels["l"], p.Status.Phase, p.DeletionTimestamp != nil, podid.SourceOf(p)))
	}
	slices.Sort(all)
	return all
}

// muxPair runs the kubelet's and Herald's merging of sources side by side.
type muxPair struct {
	kubelet   *config.PodConfig
	send      map[string]func([]*v1.Pod)
	closers   []func() // stop the kubelet's listeners
	herald    *source.Mux
	sources   map[string]*fakeSource
	delivered []batch
	mu        sync.Mutex // guards got
}

// fakeSource sends the sets that a test gives it.
type fakeSource struct {
	source podid.Source
	sets   chan []*v1.Pod
}

func (s *fakeSource) Name() podid.Source { return s.source }

func (s *fakeSource) Run(ctx context.Context, sink source.Sink) error {
	for {
		select {
		case pods := <-s.sets:
			sink.Replace(pods)
		case <-ctx.Done():
			return nil
		}
	}
}

// noopObserver ignores when the kubelet first saw a pod.
type noopObserver struct{}

func (noopObserver) ObservedPodOnWatch(*v1.Pod, time.Time) {}

func newMuxPair(ctx context.Context, t *rapid.T) *muxPair {
	m := &muxPair{
		kubelet: config.NewPodConfig(&record.FakeRecorder{}, noopObserver{}),
		send:    map[string]func([]*v1.Pod){}, sources: map[string]*fakeSource{},
	}
	var all []source.Source
	for _, name := range []string{"api", "file"} {
		send, closed := newSender(m.kubelet.Channel(ctx, name))
		m.send[name], m.closers = send, append(m.closers, closed)
		m.sources[name] = &fakeSource{source: podid.Source(name), sets: make(chan []*v1.Pod)}
		all = append(all, m.sources[name])
	}
	var err error
	if m.herald, err = source.NewMux(source.MuxConfig{Sources: all}); err != nil {
		t.Fatal(err)
	}
	return m
}

// newSender sets the only field of the kubelet's message, whose type is unexported.
func newSender[T any](channel chan<- T) (send func([]*v1.Pod), closed func()) {
	send = func(pods []*v1.Pod) {
		var message T
		reflect.ValueOf(&message).Elem().FieldByName("Pods").Set(reflect.ValueOf(pods))
		channel <- message
	}
	return send, func() { close(channel) }
}

func (m *muxPair) consume() {
	for update := range m.herald.Updates() {
		m.mu.Lock()
		m.delivered = append(m.delivered, batch{Op: update.Op.String(), Source: string(update.Source), Pods: describePods(update.Pods)})
		m.mu.Unlock()
		update.Ack()
	}
}

// step sends the same set to both and returns what each delivered.
func (m *muxPair) step(from string, pods []*v1.Pod) (kubelet, herald []batch) {
	m.send[from](copyPods(pods))
	m.sources[from].sets <- copyPods(pods)
	synctest.Wait()
	for len(m.kubelet.Updates()) > 0 {
		update := <-m.kubelet.Updates()
		kubelet = append(kubelet, batch{Op: opName(update.Op), Source: update.Source, Pods: describePods(update.Pods)})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	herald, m.delivered = m.delivered, nil
	return kubelet, herald
}

func opName(op kubetypes.PodOperation) string {
	return map[kubetypes.PodOperation]string{
		kubetypes.ADD: "ADD", kubetypes.UPDATE: "UPDATE", kubetypes.REMOVE: "REMOVE",
		kubetypes.DELETE: "DELETE", kubetypes.RECONCILE: "RECONCILE",
	}[op]
}

func copyPods(pods []*v1.Pod) []*v1.Pod {
	var all []*v1.Pod
	for _, p := range pods {
		all = append(all, p.DeepCopy())
	}
	return all
}

// generateSet generates a complete set of a source: up to four pods, each one of two instances, in one of a few states.
func generateSet(t *rapid.T, from string) []*v1.Pod {
	var pods []*v1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		instance := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, name)
		if instance == "" {
			continue
		}
		draw := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name+"."+what) }
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: from + "-" + name, Namespace: "ns", UID: types.UID(from + name + instance), Labels: map[string]string{"l": draw("label", "x", "y")},
			},
			Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: draw("image", "one", "two")}}},
			Status: v1.PodStatus{Phase: v1.PodPhase(draw("phase", "Pending", "Running"))},
		}
		if draw("deleted", "no", "no", "yes") == "yes" {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		pods = append(pods, p)
	}
	return pods
}

// TestCFG35ToCFG40_SameMerge sends the same sets from random sources to both and compares every batch: operation, order
// and pods.
func TestCFG35ToCFG40_SameMerge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.IntRange(1, 12).Draw(rt, "steps")
		type update struct {
			from string
			set  []*v1.Pod
		}
		var updates []update
		for range steps {
			from := rapid.SampledFrom([]string{"api", "file"}).Draw(rt, "from")
			updates = append(updates, update{from, generateSet(rt, from)})
		}
		var mismatch string
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			m := newMuxPair(ctx, rt)
			var all sync.WaitGroup
			all.Go(func() { _ = m.herald.Run(ctx) })
			all.Go(m.consume)
			for i, s := range updates {
				kubelet, herald := m.step(s.from, s.set)
				if diff := cmp.Diff(kubelet, herald); diff != "" && mismatch == "" {
					mismatch = fmt.Sprintf("step %d, %s: kubelet (-) and Herald (+) differ:\n%s", i, s.from, diff)
				}
			}
			cancel()
			for _, end := range m.closers {
				end()
			}
			all.Wait()
		})
		if mismatch != "" {
			rt.Fatal(mismatch)
		}
	})
}

// manifestDir is a directory that both sides read.
type manifestDir struct {
	t       *testing.T
	dir     string
	kubelet *kubelet.FileSource
	herald  *source.File
}

func newManifestDir(t *testing.T) *manifestDir {
	t.Helper()
	dir := t.TempDir()
	files, err := source.NewFile(source.FileConfig{Path: dir, NodeName: nodeName})
	if err != nil {
		t.Fatal(err)
	}
	return &manifestDir{t: t, dir: dir, kubelet: kubelet.NewFileSource(dir, nodeName), herald: files}
}

func (f *manifestDir) write(file, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, file), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func podManifest(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: main, image: web}]}\n", name)
}

// pods returns the pods that each side would run now.
func (f *manifestDir) pods() (kubelet, herald []string) {
	f.t.Helper()
	theirs, err := f.kubelet.List()
	if err != nil {
		f.t.Fatal(err)
	}
	return podNames(theirs), podNames(f.herald.Scan().Pods)
}

func podNames(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func TestCFG14_SamePodsFromDirectory(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", podManifest("a"))
	f.write("b.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"main","image":"web"}]}}`)
	f.write(".hidden.yaml", podManifest("hidden"))
	if err := os.Mkdir(filepath.Join(f.dir, "deeper"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("deeper/c.yaml", podManifest("c"))
	kubelet, herald := f.pods()
	if want := []string{"a-node-1", "b-node-1"}; !slices.Equal(kubelet, want) || !slices.Equal(herald, want) {
		t.Fatalf("got kubelet %v, Herald %v; want %v", kubelet, herald, want)
	}
	if err := os.Remove(filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if kubelet, herald = f.pods(); !slices.Equal(kubelet, herald) {
		t.Fatalf("after a removal: got kubelet %v, Herald %v; want the same", kubelet, herald)
	}
}

func TestBUG18_BrokenEdit(t *testing.T) {
	f := newManifestDir(t)
	f.write("web.yaml", podManifest("web"))
	f.pods()
	f.write("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n")
	kubelet, herald := f.pods()
	if len(kubelet) != 0 {
		t.Errorf("the kubelet no longer has this fault: it runs %v", kubelet)
	}
	if !slices.Equal(herald, []string{"web-node-1"}) {
		t.Errorf("Herald: got %v, want web-node-1", herald)
	}
	if problems := f.herald.Scan().Problems; len(problems) != 1 || problems[0].Line == 0 {
		t.Errorf("Herald: got problems %v, want one with a line", problems)
	}
}

func TestBUG32_BackupFile(t *testing.T) {
	f := newManifestDir(t)
	f.write("web.yaml", podManifest("web"))
	f.write("web.yaml.bak", podManifest("old"))
	kubelet, herald := f.pods()
	if !slices.Contains(kubelet, "old-node-1") {
		t.Errorf("the kubelet no longer has this fault: it runs %v", kubelet)
	}
	if !slices.Equal(herald, []string{"web-node-1"}) {
		t.Errorf("Herald: got %v, want web-node-1", herald)
	}
}

func TestCFG20_DuplicatePod(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", podManifest("web"))
	f.pods()
	f.write("b.yaml", podManifest("web"))
	kubelet, herald := f.pods()
	if len(kubelet) != 2 {
		t.Errorf("the kubelet no longer has this fault: it reads %v", kubelet)
	}
	if problems := f.herald.Scan().Problems; len(herald) != 1 || len(problems) != 1 {
		t.Errorf("Herald: got pods %v and problems %v, want one of each", herald, problems)
	}
}

// fakePage is a URL whose body a test changes. It counts reads.
type fakePage struct {
	mu    sync.Mutex // guards all below
	body  string
	reads int
}

func (p *fakePage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	_, _ = w.Write([]byte(p.body))
}

// setBody changes the body and waits until it was read a few times.
func (p *fakePage) setBody(t *testing.T, body string) {
	t.Helper()
	p.mu.Lock()
	p.body, p.reads = body, 0
	p.mu.Unlock()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.reads > 3, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const onePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"main","image":"web"}]}}`

func TestBUG21_EmptyURLBody(t *testing.T) {
	const period = 5 * time.Millisecond
	t.Run("kubelet", func(t *testing.T) {
		content := &fakePage{}
		server := httptest.NewServer(content)
		defer server.Close()
		theirs := config.NewPodConfig(&record.FakeRecorder{}, noopObserver{})
		config.NewSourceURL(klog.Logger{}, server.URL, nil, types.NodeName(nodeName), period, theirs.Channel(t.Context(), "http"))
		pods := 0
		for _, body := range []string{onePod, "", onePod} {
			content.setBody(t, body)
			for len(theirs.Updates()) > 0 {
				switch update := <-theirs.Updates(); update.Op {
				case kubetypes.ADD:
					pods += len(update.Pods)
				case kubetypes.REMOVE:
					pods -= len(update.Pods)
				}
			}
		}
		if pods != 0 {
			t.Error("the kubelet no longer has this fault")
		}
	})
	t.Run("Herald", func(t *testing.T) {
		content := &fakePage{}
		server := httptest.NewServer(content)
		defer server.Close()
		url, err := source.NewHTTP(source.HTTPConfig{URL: server.URL, NodeName: nodeName, Period: period, AllowInsecure: true})
		if err != nil {
			t.Fatal(err)
		}
		ours, err := source.NewMux(source.MuxConfig{Sources: []source.Source{url}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var mu sync.Mutex
		pods := 0
		all.Go(func() { _ = ours.Run(ctx) })
		all.Go(func() {
			for update := range ours.Updates() {
				mu.Lock()
				switch update.Op {
				case source.OpAdd:
					pods += len(update.Pods)
				case source.OpRemove:
					pods -= len(update.Pods)
				}
				mu.Unlock()
				update.Ack()
			}
		})
		for _, body := range []string{onePod, "", onePod} {
			content.setBody(t, body)
		}
		cancel()
		all.Wait()
		if pods != 1 {
			t.Errorf("Herald: got %d pods, want 1", pods)
		}
	})
}
