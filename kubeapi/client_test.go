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
	"go.uber.org/goleak"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = podid.FullName{Namespace: "shop", Name: "web"}

func newPod(name podid.FullName, nodeName string) *v1.Pod {
	return heraldtest.NewPod(name.Name, heraldtest.OnNode(nodeName), func(pod *v1.Pod) {
		pod.Namespace, pod.UID = name.Namespace, ""
	})
}

func newClient(t *testing.T, config *rest.Config) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// roundTripper is an http.RoundTripper made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestNew_InvalidConfig(t *testing.T) {
	for name, config := range map[string]*rest.Config{"no config": nil, "invalid host": {Host: "http://%"}} {
		if _, err := kubeapi.New(config); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestNew_Headers(t *testing.T) {
	tests := map[string]struct {
		contentType           string
		accept, acceptOnPatch string
	}{
		"default": {
			accept:        "application/vnd.kubernetes.protobuf,application/json",
			acceptOnPatch: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		},
		"JSON": {
			contentType: "application/json", accept: "application/json, */*",
			acceptOnPatch: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := heraldtest.NewAPIServer()
			server.AddPod(newPod(web, "n1"))
			config := server.Config()
			config.ContentType = test.contentType
			var headers []http.Header
			config.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
				headers = append(headers, request.Header.Clone())
				return server.Transport().RoundTrip(request)
			})
			before := rest.CopyConfig(config)
			client := newClient(t, config)
			if _, err := client.GetPod(t.Context(), web.Namespace, web.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := client.PatchPodStatus(t.Context(), web.Namespace, web.Name, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
			got := []string{
				headers[0].Get("Accept"), headers[1].Get("Accept"), headers[1].Get("Content-Type"), headers[0].Get("User-Agent"),
			}
			want := []string{test.accept, test.acceptOnPatch, string(types.StrategicMergePatchType), "herald"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
			if config.String() != before.String() || config.UserAgent != "" || config.GroupVersion != nil {
				t.Error("the caller's config was modified")
			}
		})
	}
}

// TestF4_NoRetry checks that a 429 is returned at once, with its Retry-After, by every kind of request.
func TestF4_NoRetry(t *testing.T) {
	newThrottledClient := func(t *testing.T, requests *int) *kubeapi.Client {
		t.Helper()
		body := `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
			"message": "busy", "details": {"retryAfterSeconds": 7}}`
		return newClient(t, &rest.Config{QPS: -1, Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
			*requests++
			return &http.Response{
				StatusCode: http.StatusTooManyRequests, Request: request, Body: io.NopCloser(strings.NewReader(body)),
				Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}},
			}, nil
		})})
	}
	for name, send := range map[string]func(context.Context, *kubeapi.Client) error{
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
		"node":  func(ctx context.Context, c *kubeapi.Client) error { _, err := c.GetNode(ctx, "n1"); return err },
		"lease": func(ctx context.Context, c *kubeapi.Client) error { _, err := c.GetLease(ctx, "n1"); return err },
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
				err := send(t.Context(), newThrottledClient(t, &requests))
				delay, found := apierrors.SuggestsClientDelay(err)
				if !apierrors.IsTooManyRequests(err) || !found || delay != 7 {
					t.Errorf("got %v with delay %d, want 429 with delay 7", err, delay)
				}
				if slept := time.Since(start); slept != 0 || requests != 1 {
					t.Errorf("got %d requests in %v, want 1 without delay", requests, slept)
				}
			})
		})
	}
}

// TestF10_ResponseWithoutObject checks that the body {} is not accepted as a response.
func TestF10_ResponseWithoutObject(t *testing.T) {
	client := newClient(t, &rest.Config{QPS: -1, Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Request: request, Body: io.NopCloser(strings.NewReader("{}")),
			Header: http.Header{"Content-Type": {"application/json"}},
		}, nil
	})})
	for name, send := range map[string]func(context.Context) error{
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
			if send(t.Context()) == nil {
				t.Error("got no error")
			}
		})
	}
}
