package heraldtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/heraldnode/herald/heraldtest"
)

func TestAPIServer_SetDown(t *testing.T) {
	for range 20 { // a race would not show every time
		synctest.Test(t, testSetDown)
	}
}

func testSetDown(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	server.AddPod(newPod("web", "n1"))
	watched := watchPods(t, server, metav1.ListOptions{ResourceVersion: "1"})
	defer watched.Stop()
	<-watched.ResultChan()

	server.SetDown(true)
	server.UpdatePod(defaultName("web"), func(pod *v1.Pod) { pod.Status.Message = "not watched" })
	if _, err := client.GetPod(t.Context(), metav1.NamespaceDefault, "web"); !utilnet.IsConnectionRefused(err) {
		t.Errorf("while down: got %v, want connection refused", err)
	}
	if event, more := <-watched.ResultChan(); more {
		t.Errorf("got event %s, want the watch to end", describe(event))
	}
	server.CutWatches()
	server.SetDown(true)
	server.SetDown(false)
	if pod, err := client.GetPod(t.Context(), metav1.NamespaceDefault, "web"); err != nil || pod.Status.Message == "" {
		t.Errorf("after restart: got %v, %v", pod, err)
	}
}

func TestTransport_WatchEnds(t *testing.T) {
	tests := map[string]struct {
		end  func(server *heraldtest.APIServer, cancel context.CancelFunc, body io.Closer)
		want error
	}{
		"cut": {
			end:  func(server *heraldtest.APIServer, _ context.CancelFunc, _ io.Closer) { server.CutWatches() },
			want: io.ErrUnexpectedEOF,
		},
		"canceled": {
			end:  func(_ *heraldtest.APIServer, cancel context.CancelFunc, _ io.Closer) { cancel() },
			want: context.Canceled,
		},
		"closed": {
			end:  func(_ *heraldtest.APIServer, _ context.CancelFunc, body io.Closer) { _ = body.Close() },
			want: io.ErrClosedPipe,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := heraldtest.NewAPIServer()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				body := openWatch(ctx, t, server)
				defer body.Close()
				synctest.Wait()
				test.end(server, cancel, body)
				if _, err := body.Read(make([]byte, 1)); !errors.Is(err, test.want) {
					t.Fatalf("got %v, want %v", err, test.want)
				}
			})
		})
	}
}

// The bubble fails if a goroutine is left.
func TestTransport_UnreadWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := heraldtest.NewAPIServer()
		ctx, cancel := context.WithCancel(t.Context())
		openWatch(ctx, t, server)
		server.AddPod(newPod("web", "n1"))
		synctest.Wait()
		cancel()
	})
}

// openWatch returns the response body of a watch.
func openWatch(ctx context.Context, t *testing.T, server *heraldtest.APIServer) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://any.test/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Transport().RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	return response.Body
}

func TestTransport_ContextCanceled(t *testing.T) {
	server := heraldtest.NewAPIServer()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newClient(t, server).GetPod(ctx, metav1.NamespaceDefault, "web"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if requests := server.Requests(); len(requests) != 0 {
		t.Errorf("got requests %v, want none", requests)
	}
}

func TestAPIServer_Requests(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server)
	pod := server.AddPod(newPod("web", "n1"))
	if _, err := client.GetPod(t.Context(), metav1.NamespaceDefault, "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PatchPodStatus(t.Context(), metav1.NamespaceDefault, "web", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	if err := client.DeletePod(t.Context(), metav1.NamespaceDefault, "web", pod.UID); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]string{"get", "patch", "delete"}, verbs(server)); diff != "" {
		t.Errorf("verbs (-want +got):\n%s", diff)
	}
	want := []heraldtest.Request{{Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "default", Name: "web", Query: url.Values{}}}
	if diff := gocmp.Diff(want, server.Requests("patch", "create")); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}
