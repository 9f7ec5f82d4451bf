package kubeapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/podid"
)

var web = podid.FullName{Namespace: "shop", Name: "web"}

func newPod(name podid.FullName, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name.Name, Namespace: name.Namespace},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "example.test/main"}}},
	}
}

func newClient(t *testing.T, cfg *rest.Config) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// roundTripper watches, or replaces, what goes to a server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestAPodLivesItsLifeThroughTheClient(t *testing.T) {
	for _, contentType := range []string{"", "application/json"} {
		t.Run("content type "+contentType, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			cfg := server.Config()
			cfg.ContentType = contentType
			client := newClient(t, cfg)

			created, err := client.CreatePod(t.Context(), newPod(web, "n1"))
			if err != nil {
				t.Fatal(err)
			}
			patched, err := client.PatchPodStatus(t.Context(), web.Namespace, web.Name, []byte(`{"status": {"phase": "Running"}}`))
			if err != nil {
				t.Fatal(err)
			}
			got, err := client.GetPod(t.Context(), web.Namespace, web.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := created.DeepCopy()
			want.ResourceVersion, want.Status.Phase = patched.ResourceVersion, v1.PodRunning
			if diff := cmp.Diff(want, got); diff != "" || patched.UID != created.UID || patched.ResourceVersion == created.ResourceVersion {
				t.Errorf("after %+v (-want +got):\n%s", patched.ObjectMeta, diff)
			}
			if err := client.DeletePod(t.Context(), web.Namespace, web.Name, created.UID); err != nil {
				t.Fatal(err)
			}
			if left := server.Pod(web); left != nil {
				t.Errorf("the pod on n1 was deleted with a grace period: %+v", left.ObjectMeta)
			}
		})
	}
}

func TestTheWireIsProtobufUnlessTheCallerSaysOtherwise(t *testing.T) {
	tests := map[string]struct {
		contentType           string
		accept, acceptOnPatch string
	}{
		"by default": {
			accept:        "application/vnd.kubernetes.protobuf,application/json",
			acceptOnPatch: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		},
		"as JSON": {
			contentType: "application/json", accept: "application/json, */*",
			acceptOnPatch: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			server.AddPod(newPod(web, "n1"))
			cfg := server.Config()
			cfg.ContentType = test.contentType
			var sent []http.Header
			cfg.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
				sent = append(sent, request.Header.Clone())
				return server.Transport().RoundTrip(request)
			})
			given := rest.CopyConfig(cfg)
			client := newClient(t, cfg)
			if _, err := client.GetPod(t.Context(), web.Namespace, web.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := client.PatchPodStatus(t.Context(), web.Namespace, web.Name, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
			got := []string{sent[0].Get("Accept"), sent[1].Get("Accept"), sent[1].Get("Content-Type"), sent[0].Get("User-Agent")}
			want := []string{test.accept, test.acceptOnPatch, string(types.StrategicMergePatchType), "herald"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if cfg.String() != given.String() || cfg.UserAgent != "" || cfg.GroupVersion != nil {
				t.Error("the caller's config was changed")
			}
		})
	}
}

func TestErrorsNameTheOperationAndThePodAndWrapTheAnswer(t *testing.T) {
	server := heraldtest.NewAPIServer()
	client := newClient(t, server.Config())
	server.AddPod(newPod(web, "n1"))
	missing := podid.FullName{Namespace: "shop", Name: "missing"}
	tests := map[string]struct {
		do   func(ctx context.Context) error
		is   func(error) bool
		says string
	}{
		"get": {
			do: func(ctx context.Context) error {
				_, err := client.GetPod(ctx, missing.Namespace, missing.Name)
				return err
			},
			is: apierrors.IsNotFound, says: "get pod missing_shop: ",
		},
		"create": {
			do: func(ctx context.Context) error { _, err := client.CreatePod(ctx, newPod(web, "n1")); return err },
			is: apierrors.IsAlreadyExists, says: "create pod web_shop: ",
		},
		"delete": {
			do: func(ctx context.Context) error { return client.DeletePod(ctx, web.Namespace, web.Name, "another") },
			is: apierrors.IsConflict, says: "delete pod web_shop with UID another: ",
		},
		"patch of a status": {
			do: func(ctx context.Context) error {
				_, err := client.PatchPodStatus(ctx, web.Namespace, web.Name, []byte(`{"metadata": {"uid": "another"}}`))
				return err
			},
			is: apierrors.IsInvalid, says: "patch status of pod web_shop: ",
		},
		"get of a node": {
			do: func(ctx context.Context) error { _, err := client.GetNode(ctx, "n9"); return err },
			is: apierrors.IsNotFound, says: "get node n9: ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.do(t.Context())
			if !test.is(err) || !strings.HasPrefix(err.Error(), test.says) {
				t.Fatalf("%v; want it to begin with %q and to wrap the server's answer", err, test.says)
			}
		})
	}
}

func TestF13NoPodIsDeletedByItsNameAlone(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddPod(newPod(web, "n1"))
	if err := newClient(t, server.Config()).DeletePod(t.Context(), web.Namespace, web.Name, ""); err == nil {
		t.Error("deleted without a UID")
	}
	if seen := server.Requests(); len(seen) != 0 || server.Pod(web) == nil {
		t.Errorf("the server was asked: %v", seen)
	}
}

func TestF4NobodySleepsWhenTheServerPutsARequestOff(t *testing.T) {
	client := func(t *testing.T, requests *int) *kubeapi.Client {
		t.Helper()
		busy := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
			"message": "busy", "details": {"retryAfterSeconds": 7}}`
		return newClient(t, &rest.Config{QPS: -1, Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
			*requests++
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Request: request, Body: io.NopCloser(strings.NewReader(busy)),
				Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}},
			}, nil
		})})
	}
	for name, do := range map[string]func(context.Context, *kubeapi.Client) error{
		"get": func(ctx context.Context, c *kubeapi.Client) error {
			_, err := c.GetPod(ctx, web.Namespace, web.Name)
			return err
		},
		"create": func(ctx context.Context, c *kubeapi.Client) error {
			_, err := c.CreatePod(ctx, newPod(web, "n1"))
			return err
		},
		"delete": func(ctx context.Context, c *kubeapi.Client) error {
			return c.DeletePod(ctx, web.Namespace, web.Name, "u")
		},
		"patch": func(ctx context.Context, c *kubeapi.Client) error {
			_, err := c.PatchPodStatus(ctx, web.Namespace, web.Name, []byte(`{}`))
			return err
		},
		"node": func(ctx context.Context, c *kubeapi.Client) error { _, err := c.GetNode(ctx, "n1"); return err },
		"list": func(ctx context.Context, c *kubeapi.Client) error {
			_, err := cache.ToListerWatcherWithContext(c.PodsOnNode("n1")).ListWithContext(ctx, metav1.ListOptions{})
			return err
		},
		"watch": func(ctx context.Context, c *kubeapi.Client) error {
			_, err := cache.ToListerWatcherWithContext(c.PodsOnNode("n1")).WatchWithContext(ctx, metav1.ListOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, requests := time.Now(), 0
				err := do(t.Context(), client(t, &requests))
				delay, told := apierrors.SuggestsClientDelay(err)
				if !apierrors.IsTooManyRequests(err) || !told || delay != 7 {
					t.Errorf("%v, delay %d", err, delay)
				}
				if slept := time.Since(start); slept != 0 || requests != 1 {
					t.Errorf("%d requests, slept %v", requests, slept)
				}
			})
		})
	}
}

func TestF10AnAnswerWithoutAnObjectIsAnError(t *testing.T) {
	client := newClient(t, &rest.Config{QPS: -1, Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Request: request, Body: io.NopCloser(strings.NewReader("{}")),
			Header: http.Header{"Content-Type": {"application/json"}},
		}, nil
	})})
	for name, do := range map[string]func(context.Context) error{
		"get":    func(ctx context.Context) error { _, err := client.GetPod(ctx, web.Namespace, web.Name); return err },
		"create": func(ctx context.Context) error { _, err := client.CreatePod(ctx, newPod(web, "n1")); return err },
		"delete": func(ctx context.Context) error { return client.DeletePod(ctx, web.Namespace, web.Name, "u") },
		"patch": func(ctx context.Context) error {
			_, err := client.PatchPodStatus(ctx, web.Namespace, web.Name, []byte(`{}`))
			return err
		},
		"node":   func(ctx context.Context) error { _, err := client.GetNode(ctx, "n1"); return err },
		"lease":  func(ctx context.Context) error { _, err := client.GetLease(ctx, "n1"); return err },
		"secret": func(ctx context.Context) error { _, err := client.GetSecret(ctx, "shop", "key"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if do(t.Context()) == nil {
				t.Error("the body {} was taken for an answer")
			}
		})
	}
}

func TestAClientNeedsAServer(t *testing.T) {
	for name, cfg := range map[string]*rest.Config{"no config": nil, "a bad host": {Host: "http://%"}} {
		if _, err := kubeapi.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
