package localapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/localapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAgent implements Agent. Watchers see the changes that the test makes.
type fakeAgent struct {
	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	changes chan watch.Event
}

func newFakeAgent(pods ...*v1.Pod) *fakeAgent {
	a := &fakeAgent{pods: map[types.UID]*v1.Pod{}, changes: make(chan watch.Event)}
	for _, pod := range pods {
		a.pods[pod.UID] = pod
	}
	return a
}

func (a *fakeAgent) LocalPods() []*v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.pods), func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

func (a *fakeAgent) WatchLocalPods(ctx context.Context) iter.Seq[watch.Event] {
	return func(yield func(watch.Event) bool) {
		for _, pod := range a.LocalPods() {
			if !yield(watch.Event{Type: watch.Added, Object: pod}) {
				return
			}
		}
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-a.changes:
				if !yield(event) {
					return
				}
			}
		}
	}
}

// harness runs a server over a fake agent.
type harness struct {
	tb     testing.TB
	agent  *fakeAgent
	server *localapi.Server
	http   *httptest.Server
	nodes  chan *v1.Node
	events chan v1.Event
}

func newHarness(tb testing.TB, pods ...*v1.Pod) *harness {
	tb.Helper()
	h := &harness{tb: tb, agent: newFakeAgent(pods...), nodes: make(chan *v1.Node), events: make(chan v1.Event)}
	server, err := localapi.New(localapi.Config{Agent: h.agent, Node: follow(h.nodes), Events: follow(h.events), Stats: fakeStats{}, MaxEvents: 3})
	if err != nil {
		tb.Fatal(err)
	}
	h.server, h.http = server, httptest.NewServer(server)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	tb.Cleanup(func() {
		cancel()
		running.Wait()
		h.http.Close()
	})
	return h
}

func follow[T any](values chan T) func(context.Context) iter.Seq[T] {
	return func(ctx context.Context) iter.Seq[T] {
		return func(yield func(T) bool) {
			for {
				select {
				case value := <-values:
					if !yield(value) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// change tells the server of a change and waits until it has handled the one before.
func (h *harness) change(eventType watch.EventType, pod *v1.Pod) {
	h.agent.changes <- watch.Event{Type: eventType, Object: pod}
}

// settle waits until the server has handled all changes.
func (h *harness) settle() {
	marker := heraldtest.NewPod("marker")
	h.change(watch.Added, marker)
	h.change(watch.Deleted, marker)
	h.change(watch.Deleted, marker) // received after the one before was handled
}

// open sends a GET request and returns the body of the response.
func (h *harness) open(path string, header ...string) io.ReadCloser {
	h.tb.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, h.http.URL+path, http.NoBody)
	if err != nil {
		h.tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := h.http.Client().Do(request)
	if err != nil {
		h.tb.Fatal(err)
	}
	return response.Body
}

// get returns the decoded response to a GET request.
func get[T any](h *harness, path string, header ...string) T {
	h.tb.Helper()
	body := h.open(path, header...)
	defer body.Close()
	var value T
	if err := json.NewDecoder(body).Decode(&value); err != nil {
		h.tb.Fatal(err)
	}
	return value
}

func (h *harness) list(path string) *v1.PodList {
	h.tb.Helper()
	list := get[v1.PodList](h, path)
	return &list
}

func names(pods []v1.Pod) []string {
	result := []string{}
	for _, pod := range pods {
		result = append(result, pod.Namespace+"/"+pod.Name)
	}
	return result
}

func newPod(namespace, name string, change ...func(*v1.Pod)) *v1.Pod {
	pod := heraldtest.NewPod(name)
	pod.Namespace, pod.UID = namespace, types.UID(namespace+"-"+name)
	for _, apply := range change {
		apply(pod)
	}
	return pod
}

func withPhase(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }

func withLabel(value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{"app": value} }
}

func TestKCT16_Selectors(t *testing.T) {
	h := newHarness(t,
		newPod("default", "a", withLabel("web"), withPhase(v1.PodRunning)), newPod("default", "b", withPhase(v1.PodPending)),
		newPod("shop", "c", withLabel("web"), withPhase(v1.PodFailed)))
	for path, want := range map[string][]string{
		"/api/v1/pods":                                                         {"default/a", "default/b", "shop/c"},
		"/api/v1/namespaces/shop/pods":                                         {"shop/c"},
		"/api/v1/namespaces/absent/pods":                                       {},
		"/api/v1/pods?labelSelector=app%3Dweb":                                 {"default/a", "shop/c"},
		"/api/v1/pods?labelSelector=app%21%3Dweb":                              {"default/b"},
		"/api/v1/pods?fieldSelector=status.phase%3DRunning":                    {"default/a"},
		"/api/v1/pods?fieldSelector=status.phase%21%3DFailed&unknown=1":        {"default/a", "default/b"},
		"/api/v1/pods?fieldSelector=metadata.name%3Dc&labelSelector=app%3Dweb": {"shop/c"},
	} {
		if got := names(h.list(path).Items); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	for _, query := range []string{"fieldSelector=spec.image%3Dx", "labelSelector=%21%21", "watch=maybe", "resourceVersion=x", "timeoutSeconds=-1"} {
		status := get[metav1.Status](h, "/api/v1/pods?"+query)
		if status.Code != http.StatusBadRequest || status.Message == "" {
			t.Errorf("%s: got %+v, want a bad request with a message", query, status)
		}
	}
}

func TestKCT21_ListVersions(t *testing.T) {
	h := newHarness(t, newPod("default", "a"))
	current := h.list("/api/v1/pods").ResourceVersion
	number, err := strconv.ParseUint(current, 10, 64)
	if err != nil || number == 0 {
		t.Fatalf("got version %q, want a positive number", current)
	}
	for query, want := range map[string]metav1.StatusReason{
		"resourceVersion=0": "", "resourceVersion=" + current: "", "resourceVersionMatch=Exact&resourceVersion=" + current: "",
		fmt.Sprintf("resourceVersion=%d", number+100):                          metav1.StatusReasonTimeout,
		fmt.Sprintf("resourceVersionMatch=Exact&resourceVersion=%d", number-1): metav1.StatusReasonExpired,
		"continue=token": metav1.StatusReasonExpired, "sendInitialEvents=true": metav1.StatusReasonInvalid,
	} {
		if status := get[metav1.Status](h, "/api/v1/pods?"+query); status.Reason != want {
			t.Errorf("%s: got reason %q, want %q", query, status.Reason, want)
		}
	}
}

// stream reads the events of a watch.
type stream struct {
	h       *harness
	decoder *json.Decoder
}

func (h *harness) watch(query string, header ...string) *stream {
	h.tb.Helper()
	body := h.open("/api/v1/pods?watch=true&"+query, header...)
	h.tb.Cleanup(func() { _ = body.Close() })
	return &stream{h: h, decoder: json.NewDecoder(body)}
}

func (s *stream) next() (eventType, name string, object json.RawMessage) {
	s.h.tb.Helper()
	var event struct {
		Type   string
		Object json.RawMessage
	}
	if err := s.decoder.Decode(&event); err != nil {
		s.h.tb.Fatal(err)
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.Object, &meta); err != nil {
		s.h.tb.Fatal(err)
	}
	return event.Type, meta.Name, event.Object
}

func (s *stream) expect(want ...string) {
	s.h.tb.Helper()
	for _, w := range want {
		eventType, name, _ := s.next()
		if got := strings.TrimSpace(eventType + " " + name); got != w {
			s.h.tb.Errorf("got event %q, want %q", got, w)
		}
	}
}

func TestKCT22_WatchStarts(t *testing.T) {
	h := newHarness(t, newPod("default", "a"), newPod("default", "b"))
	version := h.list("/api/v1/pods").ResourceVersion
	fromZero, fromVersion := h.watch("resourceVersion=0"), h.watch("resourceVersion="+version)
	fromZero.expect("ADDED a", "ADDED b")
	h.change(watch.Modified, newPod("default", "a", withPhase(v1.PodRunning)))
	h.change(watch.Deleted, newPod("default", "b"))
	h.change(watch.Added, newPod("default", "c"))
	for _, s := range []*stream{fromZero, fromVersion} {
		s.expect("MODIFIED a", "DELETED b", "ADDED c")
	}
	for _, query := range []string{"resourceVersion=1", "resourceVersion=9999999999999999"} {
		eventType, _, object := h.watch(query).next()
		var status metav1.Status
		if err := json.Unmarshal(object, &status); err != nil || eventType != "ERROR" || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("%s: got %s %s, want an error of reason Expired", query, eventType, object)
		}
	}
}

func TestKCT22_SlowWatchExpires(t *testing.T) {
	h := newHarness(t)
	version := h.list("/api/v1/pods").ResourceVersion
	for i := range 3 * localapi.MaxChanges {
		h.change(watch.Modified, newPod("default", "a", withLabel(strconv.Itoa(i))))
	}
	if eventType, _, object := h.watch("resourceVersion=" + version).next(); eventType != "ERROR" {
		t.Errorf("got %s %s, want an error", eventType, object)
	}
}

func TestKCT23_InitialEvents(t *testing.T) {
	h := newHarness(t, newPod("default", "a"))
	s := h.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	s.expect("ADDED a")
	eventType, _, object := s.next()
	var bookmark v1.Pod
	if err := json.Unmarshal(object, &bookmark); err != nil {
		t.Fatal(err)
	}
	if eventType != "BOOKMARK" || bookmark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || bookmark.ResourceVersion == "" {
		t.Errorf("got %s %s, want a bookmark that ends the initial events", eventType, object)
	}
	h.change(watch.Added, newPod("default", "b"))
	s.expect("ADDED b")
}

func TestKCT24_TimeoutEndsWatch(t *testing.T) {
	h := newHarness(t)
	body := h.open("/api/v1/pods?watch=true&timeoutSeconds=1")
	defer body.Close()
	if _, err := io.ReadAll(body); err != nil {
		t.Errorf("got %v, want a stream that ends", err)
	}
}

func TestKCT25_SelectorsOnWatch(t *testing.T) {
	h := newHarness(t)
	s := h.watch("labelSelector=app%3Dweb&fieldSelector=status.phase%3DRunning")
	h.change(watch.Added, newPod("default", "a", withLabel("web"), withPhase(v1.PodPending)))
	h.change(watch.Modified, newPod("default", "a", withLabel("web"), withPhase(v1.PodRunning)))
	h.change(watch.Modified, newPod("default", "a", withLabel("web"), withPhase(v1.PodRunning)))
	h.change(watch.Modified, newPod("default", "a", withLabel("other"), withPhase(v1.PodRunning)))
	h.change(watch.Deleted, newPod("default", "a"))
	h.change(watch.Added, newPod("default", "b", withLabel("web"), withPhase(v1.PodRunning)))
	s.expect("ADDED a", "MODIFIED a", "DELETED a", "ADDED b")
}

func TestFollowPods_TwoPodsOfOneName(t *testing.T) {
	h := newHarness(t)
	older, newer := newPod("default", "a"), newPod("default", "a")
	newer.UID = "newer"
	s := h.watch("")
	h.change(watch.Added, older)
	h.change(watch.Added, newer)
	h.change(watch.Modified, older.DeepCopy()) // still terminating
	h.change(watch.Modified, newer.DeepCopy())
	h.change(watch.Deleted, older)
	h.change(watch.Deleted, newer)
	s.expect("ADDED a", "DELETED a", "ADDED a", "MODIFIED a", "DELETED a")
}

// Property: whatever changes, a client that lists and watches knows what a later list returns, and versions rise (KCT-20).
func TestWatch_ListPlusWatchEqualsList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarness(&cleanupTB{TB: t, rt: rt})
		defer h.tb.(*cleanupTB).cleanup()
		steps := rapid.SliceOfN(rapid.IntRange(0, 11), 1, 40).Draw(rt, "steps")
		split := rapid.IntRange(0, len(steps)).Draw(rt, "split")
		existing := map[int]bool{}
		apply := func(steps []int) {
			for _, step := range steps {
				pod, id := newPod("default", fmt.Sprint(step%4), withLabel(fmt.Sprint(step))), step%4
				switch {
				case step < 4 && existing[id]:
					h.change(watch.Deleted, pod)
					existing[id] = false
				default:
					h.change(watch.Modified, pod)
					existing[id] = true
				}
			}
			h.settle()
		}
		apply(steps[:split])
		known := map[string]string{}
		first := h.list("/api/v1/pods")
		for _, pod := range first.Items {
			known[pod.Name] = pod.ResourceVersion
		}
		s := h.watch("resourceVersion=" + first.ResourceVersion)
		apply(steps[split:])
		final := h.list("/api/v1/pods")
		last := first.ResourceVersion
		for last != final.ResourceVersion {
			eventType, name, object := s.next()
			var pod v1.Pod
			if err := json.Unmarshal(object, &pod); err != nil {
				rt.Fatal(err)
			}
			if len(pod.ResourceVersion) == len(last) && pod.ResourceVersion <= last {
				rt.Fatalf("got version %s after %s", pod.ResourceVersion, last)
			}
			last, known[name] = pod.ResourceVersion, pod.ResourceVersion
			if eventType == "DELETED" {
				delete(known, name)
			}
			if name == "marker" && eventType == "DELETED" {
				break
			}
		}
		want := map[string]string{}
		for _, pod := range final.Items {
			want[pod.Name] = pod.ResourceVersion
		}
		if diff := cmp.Diff(want, known); diff != "" {
			rt.Fatalf("watch (-list +watch):\n%s", diff)
		}
	})
}

// cleanupTB runs cleanups at the end of one case of a property.
type cleanupTB struct {
	testing.TB
	rt       *rapid.T
	cleanups []func()
}

func (c *cleanupTB) Cleanup(f func())  { c.cleanups = append(c.cleanups, f) }
func (c *cleanupTB) Fatal(args ...any) { c.rt.Fatal(args...) }
func (c *cleanupTB) cleanup() {
	for _, f := range slices.Backward(c.cleanups) {
		f()
	}
}

const acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

func TestKCT10_Table(t *testing.T) {
	h := newHarness(t, newPod("default", "a", withPhase(v1.PodRunning)))
	table := get[metav1.Table](h, "/api/v1/pods", "Accept", acceptTable)
	if table.Kind != "Table" || table.ResourceVersion == "" || len(table.Rows) != 1 || len(table.Rows[0].Cells) != len(localapi.PodColumns) {
		t.Fatalf("got %+v, want a table with one complete row", table)
	}
	if !strings.Contains(string(table.Rows[0].Object.Raw), `"kind":"PartialObjectMetadata"`) {
		t.Errorf("got object %s, want metadata", table.Rows[0].Object.Raw)
	}
	table = get[metav1.Table](h, "/api/v1/pods?includeObject=Object", "Accept", acceptTable)
	if !strings.Contains(string(table.Rows[0].Object.Raw), `"kind":"Pod"`) {
		t.Errorf("got object %s, want the pod", table.Rows[0].Object.Raw)
	}
}

func TestKCT12_TableWatch(t *testing.T) {
	h := newHarness(t, newPod("default", "a"))
	s := h.watch("", "Accept", acceptTable)
	for i, want := range []int{len(localapi.PodColumns), 0} {
		_, _, object := s.next()
		var table metav1.Table
		if err := json.Unmarshal(object, &table); err != nil {
			t.Fatal(err)
		}
		if len(table.ColumnDefinitions) != want || len(table.Rows) != 1 {
			t.Errorf("event %d: got %d columns and %d rows, want %d and 1", i, len(table.ColumnDefinitions), len(table.Rows), want)
		}
		if i == 0 {
			h.change(watch.Modified, newPod("default", "a", withPhase(v1.PodRunning)))
		}
	}
}

func TestKCT27_Metadata(t *testing.T) {
	h := newHarness(t, newPod("default", "a", withLabel("web")))
	list := get[metav1.PartialObjectMetadataList](h, "/api/v1/pods", "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if list.Kind != "PartialObjectMetadataList" || len(list.Items) != 1 || list.Items[0].Labels["app"] != "web" {
		t.Errorf("got %+v, want the metadata of one pod", list)
	}
	status := get[metav1.Status](h, "/api/v1/pods", "Accept", "application/vnd.kubernetes.protobuf")
	if status.Code != http.StatusNotAcceptable {
		t.Errorf("protobuf: got %+v, want 406", status)
	}
}

func TestKCT30_ReadOnly(t *testing.T) {
	h := newHarness(t, newPod("default", "a"))
	for method, path := range map[string]string{
		http.MethodPost: "/api/v1/namespaces/default/pods", http.MethodDelete: "/api/v1/namespaces/default/pods/a",
		http.MethodPut: "/api/v1/nodes/n1", http.MethodPatch: "/api/v1/namespaces/default/pods/a",
	} {
		request, err := http.NewRequestWithContext(t.Context(), method, h.http.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		recorder := httptest.NewRecorder()
		h.server.ServeHTTP(recorder, request)
		allowed := recorder.Header().Get("Allow")
		var status metav1.Status
		if err := json.Unmarshal(recorder.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if status.Code != http.StatusMethodNotAllowed || allowed == "" || !strings.Contains(status.Message, "read-only") {
			t.Errorf("%s %s: got %+v, Allow %q", method, path, status, allowed)
		}
	}
	scale := get[metav1.Status](h, "/api/v1/namespaces/default/pods/a/scale")
	if scale.Code != http.StatusMethodNotAllowed || !strings.Contains(scale.Message, `scale is not supported on resources of kind "pods": this node is read-only`) {
		t.Errorf("scale: got %+v, want 405", scale)
	}
	for path, want := range map[string]int32{
		"/api/v1/namespaces/default/pods/absent": 404, "/api/v1/namespaces/default/pods/a/log": 404, "/api/v1/pods/a": 404,
		"/api/v1/secrets": 404, "/apis/apps/v1/deployments": 404, "/nothing": 404, "/api/v1/namespaces/default/pods/a/proxy": 403,
		"/api/v1/namespaces/default/nodes": 404, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": 405,
	} {
		if status := get[metav1.Status](h, path); status.Code != want || status.Kind != "Status" || status.Message == "" {
			t.Errorf("%s: got %+v, want %d", path, status, want)
		}
	}
}

func TestKCT33_NamespacesAndEvents(t *testing.T) {
	h := newHarness(t, newPod("shop", "a"))
	namespaces := func() []string {
		var found []string
		for _, namespace := range get[v1.NamespaceList](h, "/api/v1/namespaces").Items {
			found = append(found, namespace.Name)
		}
		return found
	}
	for i := range 5 { // the server keeps three
		h.events <- v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", i), Name: "e"}, Reason: "Started"}
	}
	h.events <- v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns4", Name: "e"}, Reason: "Started", Count: 2}
	heraldtest.Eventually(t, func() error {
		events := get[v1.EventList](h, "/api/v1/events?fieldSelector=reason%3DStarted").Items
		if len(events) != 3 || events[2].Count != 2 || !slices.Equal(namespaces(), []string{"ns2", "ns3", "ns4", "shop"}) {
			return fmt.Errorf("got %d events and namespaces %v", len(events), namespaces())
		}
		return nil
	})
}

func TestFollowNode_HeartbeatIsNoChange(t *testing.T) {
	h := newHarness(t)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	node.Status.NodeInfo.KubeletVersion = "v1.36.3+herald.0.2"
	h.nodes <- node
	h.nodes <- node.DeepCopy()
	version := get[v1.NodeList](h, "/api/v1/nodes").ResourceVersion
	beat := node.DeepCopy()
	beat.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(1, 0)
	h.nodes <- beat
	h.nodes <- beat.DeepCopy()
	nodes := get[v1.NodeList](h, "/api/v1/nodes")
	if nodes.ResourceVersion != version || len(nodes.Items) != 1 {
		t.Errorf("got version %s and %d nodes, want %s and 1", nodes.ResourceVersion, len(nodes.Items), version)
	}
	info := get[map[string]string](h, "/version")
	if info["minor"] != "36" || info["gitVersion"] != "v1.36.3+herald.0.2" {
		t.Errorf("got version %v, want that of the Node", info)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir() + "/kubectl"
	if _, err := localapi.LoadCredentials(dir); err == nil {
		t.Fatal("got no error for a missing directory")
	}
	created, err := localapi.CreateCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := localapi.CreateCredentials(dir)
	if err != nil || again.Token != created.Token || string(again.CertificatePEM) != string(created.CertificatePEM) {
		t.Errorf("got %v, %v, want the same credentials", again, err)
	}
	handler := created.Require(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for header, want := range map[string]int{
		"": 401, "Bearer": 401, "Bearer x": 401, "Basic " + created.Token: 401, "Bearer " + created.Token + "x": 401,
		"Bearer " + created.Token: http.StatusNoContent,
	} {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		request.Header.Set("Authorization", header)
		handler.ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%q: got %d, want %d", header, recorder.Code, want)
		}
	}
}
