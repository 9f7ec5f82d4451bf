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
		soon(t), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != want {
		t.Fatalf("the API server takes the client for %+v, %v; want %s", review.Status.UserInfo, err, want)
	}
}

// newProxy returns a proxy, its faults and a client of the administrator that goes through it.
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

func TestTheProxyKeepsTheCallersIdentity(t *testing.T) {
	proxy, faults, admin := newProxy(t)
	requireUser(t, admin, "herald-test-admin")
	mine, other := createPod(t, "a"), createPod(t, "b")
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
	if err := patchStatus(soon(t), node, mine); err != nil {
		t.Errorf("its own pod: %v", err)
	}
	if err := patchStatus(soon(t), node, other); !apierrors.IsForbidden(err) {
		t.Errorf("another node's pod: %v", err)
	}
	patches := faults.Requests().Filter("patch", "/pods/.*/status$")
	if len(patches) != 2 || patches[0].Status != http.StatusOK || patches[1].Status != http.StatusForbidden {
		t.Errorf("trace: %+v", patches)
	}
}

func TestTheProxySpeaksHTTP2AsTheAPIServerDoes(t *testing.T) {
	proxy, _, _ := newProxy(t)
	client, err := rest.HTTPClientFor(proxy.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(soon(t), http.MethodGet, proxy.URL()+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("%s over %s", resp.Status, resp.Proto)
	}
}

func TestF4TheProxysClientSeesTooManyRequestsAndWhenToComeBack(t *testing.T) {
	_, faults, client := newProxy(t)
	rule := fault.On("GET", "/namespaces/default$").Times(1).Reply(http.StatusTooManyRequests, fault.RetryAfter(7*time.Second))
	faults.Add(rule)
	get := func() error {
		return client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default").MaxRetries(0).Do(soon(t)).Error()
	}
	err := get()
	if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds != 7 {
		t.Fatalf("have %v, %d s", err, seconds)
	}
	if err := get(); err != nil || rule.Fired() != 1 {
		t.Fatalf("after it: %v, fired %d times", err, rule.Fired())
	}
}

func TestF9F10TheProxysClientCannotTellAResetBeforeFromOneAfterExecution(t *testing.T) {
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
			if err := create(soon(t), client); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
				t.Fatalf("the client has an answer: %v", err)
			}
			if executed := countConfigMaps(t) > before; executed != test.executed {
				t.Fatalf("executed: %v, want %v", executed, test.executed)
			}
			if err := create(soon(t), client); err != nil {
				t.Fatalf("after it: %v", err)
			}
		})
	}
}

func countConfigMaps(t *testing.T) int {
	t.Helper()
	list, err := newClient(t, shared.AdminConfig()).CoreV1().ConfigMaps(v1.NamespaceDefault).List(soon(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func TestF2F3TheProxysClientWaitsForADelayAndGivesUpOnAHang(t *testing.T) {
	_, faults, client := newProxy(t)
	remove := faults.Add(fault.On("create", "/configmaps").Delay(300 * time.Millisecond))
	start := time.Now()
	if err := create(soon(t), client); err != nil || time.Since(start) < 300*time.Millisecond {
		t.Fatalf("delayed: %v after %v", err, time.Since(start))
	}
	remove()
	faults.Add(fault.On("create", "/configmaps").Times(1).Hang())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := create(ctx, client); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("hanging: %v", err)
	}
	if err := create(soon(t), client); err != nil {
		t.Fatalf("after it: %v", err)
	}
}

// watchConfigMaps starts a watch from now on.
func watchConfigMaps(t *testing.T, client kubernetes.Interface) watch.Interface {
	t.Helper()
	configMaps := client.CoreV1().ConfigMaps(v1.NamespaceDefault)
	list, err := configMaps.List(soon(t), metav1.ListOptions{})
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
			t.Fatalf("have %+v, want the creation of %s", event, want.Name)
		}
	case <-soon(t).Done():
		t.Fatal("the event does not come")
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
				t.Fatalf("have %+v, want the end", event)
			}
		case <-soon(t).Done():
			t.Fatal("the watch does not end")
		}
	}
}

func TestF11TheProxyPassesEventsAtOnceAndCutsARunningWatch(t *testing.T) {
	_, faults, client := newProxy(t)
	stream := watchConfigMaps(t, client)
	requireAdded(t, stream, createConfigMap(t))
	faults.Add(fault.On("watch", "/configmaps").Times(1).Cut())
	requireEnded(t, stream)

	next := watchConfigMaps(t, client)
	requireAdded(t, next, createConfigMap(t))
}

func TestF11TheProxyStallsARunningWatch(t *testing.T) {
	_, faults, client := newProxy(t)
	healthy, stalled := watchConfigMaps(t, newClient(t, shared.AdminConfig())), watchConfigMaps(t, client)
	heal := faults.Add(fault.On("watch", "/configmaps").Stall())
	created := createConfigMap(t)
	requireAdded(t, healthy, created)
	select {
	case event, open := <-stalled.ResultChan():
		t.Fatalf("the stalled watch has %+v, open: %v", event, open)
	default:
	}
	heal()
	requireAdded(t, stalled, created)
}

func TestResetConnectionsEndsEveryWatchAndHealsByItself(t *testing.T) {
	proxy, _, client := newProxy(t)
	one, two := watchConfigMaps(t, client), watchConfigMaps(t, client)
	proxy.ResetConnections()
	requireEnded(t, one)
	requireEnded(t, two)
	requireAdded(t, watchConfigMaps(t, client), createConfigMap(t))
}

func TestF1TheProxyOutlivesTheAPIServer(t *testing.T) {
	_, _, client := newProxy(t)
	if err := shared.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := create(soon(t), client); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("the client has an answer from nobody: %v", err)
	}
	if err := shared.APIServer.Start(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := create(soon(t), client); err != nil {
		t.Errorf("after it: %v", err)
	}
}
