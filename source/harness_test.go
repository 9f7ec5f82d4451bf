package source_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
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

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/source/manifest"
)

func TestMain(m *testing.M) {
	os.Setenv("HTTP_PROXY", "http://127.0.0.1:1/") // must not be used; net/http reads it once, so it is set first
	goleak.VerifyTestMain(m)
}

const node = "n1"

// newPod returns a pod of this node. The UID is also its image, so that pods with different UIDs differ in content.
func newPod(name, uid string, mutate ...func(*v1.Pod)) *v1.Pod {
	identify := func(pod *v1.Pod) { pod.UID, pod.Spec.Containers[0].Image = types.UID(uid), uid }
	return heraldtest.NewPod(name, append([]func(*v1.Pod){heraldtest.OnNode(node), identify}, mutate...)...)
}

func withVersion(version string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.ResourceVersion = version }
}

func withImage(image string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.Containers[0].Image = image }
}

func withPhase(phase v1.PodPhase) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Status.Phase = phase }
}

func withAnnotation(key, value string) func(*v1.Pod) {
	return func(pod *v1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

func terminating(pod *v1.Pod) {
	pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	pod.DeletionGracePeriodSeconds = new(int64)
}

// fakeSource passes its sink to the test, which calls it.
type fakeSource struct {
	name podid.Source
	sink chan source.Sink
	err  error // returned by Run at once, if set
}

func newFakeSource(name podid.Source) *fakeSource {
	return &fakeSource{name: name, sink: make(chan source.Sink, 1)}
}

func (s *fakeSource) Name() podid.Source { return s.name }

func (s *fakeSource) Run(ctx context.Context, sink source.Sink) error {
	s.sink <- sink
	if s.err != nil {
		return s.err
	}
	<-ctx.Done()
	return nil
}

// describe returns an update in a comparable form: file ADD web/u1 db/u2.
func describe(update source.Update) string {
	words := []string{string(update.Source), update.Op.String()}
	for _, pod := range update.Pods {
		words = append(words, pod.Name+"/"+string(pod.UID))
	}
	return strings.Join(words, " ")
}

// decodeLines decodes a minimal manifest: one line for each pod with its name and version. "none" stands for no pods.
func decodeLines(data []byte, origin manifest.Origin) ([]*v1.Pod, error) {
	text := strings.TrimSpace(string(data))
	switch text {
	case "":
		return nil, manifest.Errors{{Location: origin.Location, Err: manifest.ErrEmpty}}
	case "none":
		return nil, nil
	}
	var pods []*v1.Pod
	for i, line := range strings.Split(text, "\n") {
		name, version, ok := strings.Cut(line, " ")
		if !ok || name == "" || version == "" {
			return nil, manifest.Errors{{
				Location: origin.Location, Line: i + 1, Field: "metadata", Err: errors.New("want a name and a version"),
			}}
		}
		pods = append(pods, newPod(name, name+"-"+version))
	}
	return pods, nil
}

// realManifest returns a manifest of ordinary size for manifest.Decode.
func realManifest(name, image string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
  labels: {app: web, tier: front}
spec:
  hostNetwork: true
  containers:
  - name: web
    image: %s
    args: [--listen=:8080, --verbose]
    ports: [{containerPort: 8080}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
    livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    hostPath: {path: /var/lib/web, type: DirectoryOrCreate}
`, name, image)
}

// fakeSink records what a source reports.
type fakeSink struct {
	mu       sync.Mutex // guards all below
	changed  chan struct{}
	sets     int
	reports  int
	pods     []*v1.Pod
	problems []source.Problem
	history  []string // UIDs of each set
}

func newFakeSink() *fakeSink { return &fakeSink{changed: make(chan struct{})} }

func (s *fakeSink) Replace(pods []*v1.Pod) {
	s.update(func() {
		s.sets++
		s.pods = pods
		s.history = append(s.history, uids(pods))
	})
}

func (s *fakeSink) Apply(updated []*v1.Pod, deleted []types.UID) {
	s.update(func() {
		for _, pod := range updated {
			deleted = append(deleted, pod.UID)
		}
		s.pods = slices.DeleteFunc(slices.Clone(s.pods), func(pod *v1.Pod) bool { return slices.Contains(deleted, pod.UID) })
		s.pods = append(s.pods, updated...)
	})
}

func (s *fakeSink) Report(problems []source.Problem) {
	s.update(func() {
		s.reports++
		s.problems = problems
	})
}

func (s *fakeSink) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait blocks until the condition is met. It holds the lock during each call of condition.
func (s *fakeSink) wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		s.mu.Lock()
		done, changed := condition(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Fatalf("timed out: got %d sets, pods %q, problems:\n%s\nwant %s",
				s.sets, uids(s.pods), problemText(s.problems), what)
		}
	}
}

func (s *fakeSink) waitPods(t *testing.T, want string) {
	t.Helper()
	s.wait(t, fmt.Sprintf("pods %q", want), func() bool { return s.sets > 0 && uids(s.pods) == want })
}

func (s *fakeSink) waitProblem(t *testing.T, part string) {
	t.Helper()
	s.wait(t, fmt.Sprintf("problem with %q", part), func() bool { return strings.Contains(problemText(s.problems), part) })
}

func (s *fakeSink) waitNoProblem(t *testing.T) {
	t.Helper()
	s.wait(t, "no problem", func() bool { return len(s.problems) == 0 })
}

// waitReports blocks until the source has called Report that many times in total. Each scan of a path and each request of
// a URL ends with one call.
func (s *fakeSink) waitReports(t *testing.T, count int) {
	t.Helper()
	s.wait(t, fmt.Sprintf("%d reports", count), func() bool { return s.reports >= count })
}

func (s *fakeSink) state() (sets int, pods string, problems string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets, uids(s.pods), problemText(s.problems)
}

// uids returns the sorted UIDs of the pods. Most tests use name and version as UID.
func uids(pods []*v1.Pod) string {
	all := make([]string, 0, len(pods))
	for _, pod := range pods {
		all = append(all, string(pod.UID))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func problemText(problems []source.Problem) string {
	lines := make([]string, 0, len(problems))
	for _, problem := range problems {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n")
}

// startSource runs a source until the test ends and returns its sink.
func startSource(t *testing.T, s source.Source) *fakeSink {
	t.Helper()
	sink := newFakeSink()
	runSource(t, s, sink)
	return sink
}

// runSource runs a source until the test ends.
func runSource(t *testing.T, s source.Source, sink source.Sink) {
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

// writeKeyPair writes a certificate and its key and returns their paths.
func writeKeyPair(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = write(t, dir+"/cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	key = write(t, dir+"/key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	return cert, key
}
