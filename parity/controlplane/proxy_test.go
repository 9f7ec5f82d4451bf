package controlplane_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/controlplane"
)

func requireUser(t *testing.T, client kubernetes.Interface, want string) {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(
		testContext(t), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != want {
		t.Fatalf("got user %+v, %v; want %s", review.Status.UserInfo, err, want)
	}
}

// newProxy returns a proxy, its fault injector and an administrator's client that uses it.
func newProxy(t *testing.T) (*controlplane.Proxy, *fault.Injector, kubernetes.Interface) {
	t.Helper()
	faults := fault.NewInjector()
	proxy, err := shared.NewProxy(faults)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy, faults, newClient(t, proxy.AdminConfig())
}

func create(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ConfigMaps(v1.NamespaceDefault).Create(ctx, newConfigMap(), metav1.CreateOptions{})
	return err
}

func TestProxy_KeepsIdentity(t *testing.T) {
	proxy, faults, admin := newProxy(t)
	requireUser(t, admin, "herald-test-admin")
	own, other := createPod(t, "a"), createPod(t, "b")
	path, err := proxy.NodeKubeconfig("a")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	node := newClient(t, config)
	requireUser(t, node, "system:node:a")
	if err := patchStatus(testContext(t), node, own); err != nil {
		t.Errorf("own pod: %v", err)
	}
	if err := patchStatus(testContext(t), node, other); !apierrors.IsForbidden(err) {
		t.Errorf("pod of another node: got %v, want Forbidden", err)
	}
	patches := faults.Requests().Filter("patch", "/pods/.*/status$")
	if len(patches) != 2 || patches[0].Status != http.StatusOK || patches[1].Status != http.StatusForbidden {
		t.Errorf("got patches %+v, want one OK and one Forbidden", patches)
	}
}

func TestProxy_HTTP2(t *testing.T) {
	proxy, _, _ := newProxy(t)
	client, err := rest.HTTPClientFor(proxy.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, proxy.URL()+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("got %s over %s, want OK over HTTP/2", resp.Status, resp.Proto)
	}
}

func TestF4_ProxyRetryAfter(t *testing.T) {
	_, faults, client := newProxy(t)
	rule := fault.On("GET", "/namespaces/default$").Times(1).Reply(http.StatusTooManyRequests, fault.RetryAfter(7*time.Second))
	faults.Add(rule)
	get := func() error {
		return client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default").MaxRetries(0).Do(testContext(t)).Error()
	}
	err := get()
	if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds != 7 {
		t.Fatalf("got %v, delay %d s; want TooManyRequests, 7 s", err, seconds)
	}
	if err := get(); err != nil || rule.Fired() != 1 {
		t.Fatalf("second request: %v, rule fired %d times", err, rule.Fired())
	}
}

// The client cannot distinguish a reset before the execution from one after it.
func TestF9F10_ProxyReset(t *testing.T) {
	_, faults, client := newProxy(t)
	for name, test := range map[string]struct {
		rule     *fault.Rule
		executed bool
	}{
		"before": {fault.On("create", "/configmaps").Times(1).Reset(), false},
		"after":  {fault.On("create", "/configmaps").Times(1).LoseReply(), true},
	} {
		t.Run(name, func(t *testing.T) {
			before := countConfigMaps(t)
			faults.Add(test.rule)
			if err := create(testContext(t), client); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				t.Fatalf("got %v, want no response", err)
			}
			if executed := countConfigMaps(t) > before; executed != test.executed {
				t.Fatalf("executed: got %v, want %v", executed, test.executed)
			}
			if err := create(testContext(t), client); err != nil {
				t.Fatalf("without fault: %v", err)
			}
		})
	}
}

func countConfigMaps(t *testing.T) int {
	t.Helper()
	list, err := newClient(t, shared.AdminConfig()).CoreV1().ConfigMaps(v1.NamespaceDefault).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func TestF2F3_ProxyDelayAndHang(t *testing.T) {
	_, faults, client := newProxy(t)
	remove := faults.Add(fault.On("create", "/configmaps").Delay(300 * time.Millisecond))
	start := time.Now()
	if err := create(testContext(t), client); err != nil || time.Since(start) < 300*time.Millisecond {
		t.Fatalf("delayed: got %v after %v", err, time.Since(start))
	}
	remove()
	faults.Add(fault.On("create", "/configmaps").Times(1).Hang())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := create(ctx, client); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("hanging: got %v, want DeadlineExceeded", err)
	}
	if err := create(testContext(t), client); err != nil {
		t.Fatalf("without fault: %v", err)
	}
}

// watchConfigMaps starts a watch at the current version.
func watchConfigMaps(t *testing.T, client kubernetes.Interface) watch.Interface {
	t.Helper()
	configMaps := client.CoreV1().ConfigMaps(v1.NamespaceDefault)
	list, err := configMaps.List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Stop)
	return stream
}

func requireAdded(t *testing.T, stream watch.Interface, want *v1.ConfigMap) {
	t.Helper()
	select {
	case event := <-stream.ResultChan():
		got, isConfigMap := event.Object.(*v1.ConfigMap)
		if event.Type != watch.Added || !isConfigMap || got.UID != want.UID {
			t.Fatalf("got %+v, want the creation of %s", event, want.Name)
		}
	case <-testContext(t).Done():
		t.Fatal("got no event")
	}
}

func requireEnded(t *testing.T, stream watch.Interface) {
	t.Helper()
	for {
		select {
		case event, open := <-stream.ResultChan():
			if !open {
				return
			}
			if event.Type != watch.Error {
				t.Fatalf("got %+v, want the end of the watch", event)
			}
		case <-testContext(t).Done():
			t.Fatal("the watch did not end")
		}
	}
}

func TestF11_ProxyCutsWatch(t *testing.T) {
	_, faults, client := newProxy(t)
	stream := watchConfigMaps(t, client)
	requireAdded(t, stream, createConfigMap(t))
	faults.Add(fault.On("watch", "/configmaps").Times(1).Cut())
	requireEnded(t, stream)

	next := watchConfigMaps(t, client)
	requireAdded(t, next, createConfigMap(t))
}

func TestF11_ProxyStallsWatch(t *testing.T) {
	_, faults, client := newProxy(t)
	healthy, stalled := watchConfigMaps(t, newClient(t, shared.AdminConfig())), watchConfigMaps(t, client)
	heal := faults.Add(fault.On("watch", "/configmaps").Stall())
	created := createConfigMap(t)
	requireAdded(t, healthy, created)
	select {
	case event, open := <-stalled.ResultChan():
		t.Fatalf("stalled watch: got %+v, open: %v", event, open)
	default:
	}
	heal()
	requireAdded(t, stalled, created)
}

func TestProxy_ResetConnections(t *testing.T) {
	proxy, _, client := newProxy(t)
	one, two := watchConfigMaps(t, client), watchConfigMaps(t, client)
	proxy.ResetConnections()
	requireEnded(t, one)
	requireEnded(t, two)
	requireAdded(t, watchConfigMaps(t, client), createConfigMap(t))
}

func TestF1_ProxyOutlivesAPIServer(t *testing.T) {
	_, _, client := newProxy(t)
	if err := shared.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := create(testContext(t), client); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("API server down: got %v, want no response", err)
	}
	if err := shared.APIServer.Start(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := create(testContext(t), client); err != nil {
		t.Errorf("API server restarted: %v", err)
	}
}
