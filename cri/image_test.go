package cri_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri"
)

func TestEnsureImage_PullPolicy(t *testing.T) {
	tests := map[string]struct {
		policy             v1.PullPolicy
		image              string
		statusCalls, pulls int
		reason             string
	}{
		"always, present":         {v1.PullAlways, "web:1", 2, 1, ""}, // before and after the pull
		"always, absent":          {v1.PullAlways, "web:2", 2, 1, ""},
		"if not present, present": {v1.PullIfNotPresent, "web:1", 1, 0, ""},
		"if not present, absent":  {v1.PullIfNotPresent, "web:2", 3, 1, ""},
		"never, present":          {v1.PullNever, "web:1", 1, 0, ""},
		"never, absent":           {v1.PullNever, "web:2", 1, 0, "ErrImageNeverPull"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				pod := podWithImage(test.image)
				pod.Spec.Containers[0].ImagePullPolicy = test.policy
				if err := h.startFirst(h.Context(), pod); waitingReason(err) != test.reason {
					h.Errorf("got error %v", err)
				}
				if statusCalls := len(requests[*runtimeapi.ImageStatusRequest](h.fake)); statusCalls != test.statusCalls || h.pullCount() != test.pulls {
					h.Errorf("got %d status calls, %d pulls", statusCalls, h.pullCount())
				}
			})
		})
	}
}

func TestEnsureImage_Names(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	tests := map[string]string{ // the name in the request to the runtime, "" if invalid
		"busybox":                  "busybox:latest",
		"host":                     "host:latest",
		"busybox:1.36":             "busybox:1.36",
		"team/app":                 "team/app:latest",
		"127.0.0.1:5000/app":       "127.0.0.1:5000/app:latest",
		"my_host.io/app":           "my_host.io/app:latest",
		"localhost/app":            "localhost/app:latest",
		"[fd00::1]:5000/app:v1":    "[fd00::1]:5000/app:v1",
		"Registry/app":             "Registry/app:latest", // a host: paths have no capitals
		"app" + digest:             "app" + digest,
		"reg.io/a/b__c/d-e.f:V1_x": "reg.io/a/b__c/d-e.f:V1_x",
		"reg.io/app:v1" + digest:   "reg.io/app:v1" + digest,
		strings.Repeat("a", 63):    strings.Repeat("a", 63) + ":latest",
		strings.Repeat("a/", 120):  "",

		"":                                     "",
		" busybox":                             "",
		"App":                                  "",
		"reg.io/App":                           "",
		"app:":                                 "",
		"app:-v1":                              "",
		"app:" + strings.Repeat("v", 129):      "",
		"app@sha256:beef":                      "",
		"app@md5:" + strings.Repeat("a", 32):   "",
		"app//x":                               "",
		"-app":                                 "",
		"reg.io:port/app":                      "",
		"https://reg.io/app":                   "",
		"a..b/c:1":                             "",
		strings.Repeat("a", 64):                "",
		"reg.io/" + strings.Repeat("a", 256):   "",
		"app\n":                                "",
		"reg.io/app:v1@sha256:" + digest[1:70]: "",
	}
	for image, want := range tests {
		t.Run(image, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				err := h.startFirst(h.Context(), podWithImage(image))
				if want == "" {
					if waitingReason(err) != "InvalidImageName" || h.pullCount() != 0 {
						h.Errorf("got %s: %v", waitingReason(err), err)
					}
					prefix := "Warning InspectFailed spec.containers{web}: Failed to apply default image tag "
					if events := h.events(); !strings.HasPrefix(events[0], prefix) {
						h.Errorf("got events %q", events)
					}
					return
				}
				if err != nil {
					h.Fatal(err)
				}
				requested := requests[*runtimeapi.PullImageRequest](h.fake)[0].Image
				if requested.Image != want || requested.UserSpecifiedImage != image {
					h.Errorf("got %v, want %s", requested, want)
				}
			})
		})
	}
}

func TestEnsureImage_InspectError(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("ImageStatus", fails(codes.Internal, "broken store"))
		err := h.startFirst(h.Context(), newPod())
		if waitingReason(err) != "ImageInspectError" || err.Error() != `Failed to inspect image "web:1": broken store` {
			h.Errorf("got %s: %v", waitingReason(err), err)
		}
		want := []string{
			`Warning InspectFailed spec.containers{web}: Failed to inspect image "web:1": broken store`,
			"Warning Failed spec.containers{web}: Error: ImageInspectError",
		}
		if diff := cmp.Diff(want, h.events()); diff != "" {
			h.Error(diff)
		}
	})
}

func TestPullBackoff_Delays(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := podWithImage("web:2")
		for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			delay *= time.Second
			h.fake.inject("PullImage", fails(codes.Unknown, "manifest unknown"))
			before := h.pullCount()
			if err := h.startFirst(h.Context(), pod); waitingReason(err) != "ErrImagePull" || err.Error() != "manifest unknown" {
				h.Fatalf("got %s: %v", waitingReason(err), err)
			}
			time.Sleep(time.Second)
			err := h.startFirst(h.Context(), pod)
			if want := `Back-off pulling image "web:2": ErrImagePull: manifest unknown`; waitingReason(err) != "ImagePullBackOff" ||
				err.Error() != want || retryAfter(err) != delay-time.Second {
				h.Fatalf("got %s: %v, retry after %v, want %v", waitingReason(err), err, retryAfter(err), delay-time.Second)
			}
			if h.pullCount() != before+1 {
				h.Error("got a pull during the back-off")
			}
			time.Sleep(retryAfter(err))
		}
		events := h.events()
		want := []string{
			`Normal BackOff spec.containers{web}: Back-off pulling image "web:2"`,
			"Warning Failed spec.containers{web}: Error: ImagePullBackOff",
		}
		if diff := cmp.Diff(want, events[len(events)-2:]); diff != "" {
			h.Error(diff)
		}
		if err := h.startFirst(h.Context(), pod); err != nil {
			h.Error("after the back-off:", err)
		}
	})
}

func TestPullBackoff_Expires(t *testing.T) {
	inBubble(t, func(h *harness) {
		pod := podWithImage("web:2")
		for _, wait := range []time.Duration{10 * time.Second, 10*time.Minute + time.Second, 0} {
			h.fake.inject("PullImage", fails(codes.Unknown, "no"))
			if err := h.startFirst(h.Context(), pod); waitingReason(err) != "ErrImagePull" {
				h.Fatal(err)
			}
			time.Sleep(wait)
		}
		if err := h.startFirst(h.Context(), pod); retryAfter(err) != 10*time.Second {
			h.Errorf("got error %v, retry after %v", err, retryAfter(err))
		}
	})
}

func TestPullBackoff_PerPodAndImage(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", fails(codes.Unknown, "no"))
		if err := h.startFirst(h.Context(), podWithImage("web:2")); waitingReason(err) != "ErrImagePull" {
			h.Fatal(err)
		}
		if err := h.startFirst(h.Context(), podWithImage("web:2", withUID("uid-2"))); err != nil {
			h.Error(err)
		}
		if err := h.startFirst(h.Context(), podWithImage("web:3")); err != nil {
			h.Error("other image:", err)
		}
	})
}

func TestPull_ReasonOfRuntime(t *testing.T) {
	tests := map[string][2]string{
		"RegistryUnavailable: timeout": {"RegistryUnavailable", "image pull failed for web:2 because the registry is unavailable: timeout"},
		"SignatureValidationFailed":    {"SignatureValidationFailed", "image pull failed for web:2 because the signature validation failed"},
	}
	for message, want := range tests {
		t.Run(message, func(t *testing.T) {
			inBubble(t, func(h *harness) {
				h.fake.inject("PullImage", fails(codes.Unknown, message))
				if err := h.startFirst(h.Context(), podWithImage("web:2")); waitingReason(err) != want[0] || err.Error() != want[1] {
					h.Errorf("got %s: %v", waitingReason(err), err)
				}
			})
		})
	}
}

func TestPull_Shared(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", delays(90*time.Second))
		done := make(chan error)
		const pods = 5
		for i := range pods {
			pod := podWithImage("web:2", withUID(types.UID(fmt.Sprint("uid-", i))))
			sandbox := h.startSandbox(pod)
			go func() { done <- h.StartContainer(h.Context(), pod, sandbox, firstStart(pod)) }()
			time.Sleep(time.Second)
		}
		for range pods {
			if err := <-done; err != nil {
				h.Error(err)
			}
		}
		if h.pullCount() != 1 {
			h.Errorf("got %d pulls, want 1", h.pullCount())
		}
		recorded := map[string]bool{}
		for _, line := range h.events() {
			recorded[line] = true
		}
		for i := range pods {
			want := fmt.Sprintf(`Normal Pulled spec.containers{web}: Successfully pulled image "web:2" in 1m30s `+
				"(%v including waiting). Image size: 2048 bytes.", 90*time.Second-time.Duration(i)*time.Second)
			if !recorded[want] {
				h.Errorf("got events %q, want %q", h.events(), want)
			}
		}
	})
}

func TestBUG27_LeaveSharedPull(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", delays(time.Minute))
		type request struct {
			cancel context.CancelFunc
			done   chan error
		}
		var waiting []request
		for i := range 2 {
			pod := podWithImage("web:2", withUID(types.UID(fmt.Sprint("uid-", i))))
			sandbox := h.startSandbox(pod)
			ctx, cancel := context.WithCancel(h.Context())
			r := request{cancel, make(chan error, 1)}
			waiting = append(waiting, r)
			go func() { r.done <- h.StartContainer(ctx, pod, sandbox, firstStart(pod)) }()
			synctest.Wait()
		}
		defer waiting[1].cancel()
		started := time.Now()
		waiting[0].cancel() // the request that started the pull
		if err := <-waiting[0].done; !errors.Is(err, context.Canceled) || waitingReason(err) != "" || time.Since(started) > 0 {
			h.Errorf("leaving pod: got error %v after %v", err, time.Since(started))
		}
		if err := <-waiting[1].done; err != nil || h.pullCount() != 1 {
			h.Errorf("remaining pod: got error %v after %d pulls", err, h.pullCount())
		}
	})
}

func TestPull_CancelledWithoutWaiters(t *testing.T) {
	inBubble(t, func(h *harness) {
		done := make(chan error, 1)
		h.fake.inject("PullImage", func(ctx context.Context, _ func() (any, error)) (any, error) {
			<-ctx.Done()
			done <- ctx.Err()
			return nil, ctx.Err()
		})
		pod := podWithImage("web:2")
		ctx, cancel := context.WithCancel(h.Context())
		started := time.Now()
		time.AfterFunc(time.Second, cancel)
		if err := h.startFirst(ctx, pod); !errors.Is(err, context.Canceled) {
			h.Errorf("got error %v", err)
		}
		if err := <-done; !errors.Is(err, context.Canceled) || time.Since(started) > time.Second {
			h.Errorf("pull: got error %v after %v", err, time.Since(started))
		}
		if err := h.startFirst(h.Context(), pod); err != nil {
			h.Error("next request:", err)
		}
	})
}

// The runtime cancels a pull without progress. One that makes progress takes as long as it takes.
func TestPull_NoTimeout(t *testing.T) {
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", delays(24*time.Hour))
		if err := h.startFirst(h.Context(), podWithImage("web:2")); err != nil {
			h.Errorf("slow pull: got error %v", err)
		}
	})
	inBubble(t, func(h *harness) {
		h.fake.inject("PullImage", hangs)
		ctx, cancel := context.WithTimeout(h.Context(), 24*time.Hour)
		defer cancel()
		started := time.Now()
		if err := h.startFirst(ctx, podWithImage("web:2")); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != 24*time.Hour {
			h.Errorf("hanging pull: got error %v after %v", err, time.Since(started))
		}
	})
}

func TestPull_Limit(t *testing.T) {
	for limit, want := range map[int]time.Duration{0: time.Minute, 1: 4 * time.Minute, 2: 2 * time.Minute} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			inBubble(t, func(h *harness) {
				started, done := time.Now(), make(chan error)
				const images = 4
				for i := range images {
					h.fake.inject("PullImage", delays(time.Minute))
					pod := podWithImage(fmt.Sprint("image:", i), withUID(types.UID(fmt.Sprint("uid-", i))))
					sandbox := h.startSandbox(pod)
					go func() { done <- h.StartContainer(h.Context(), pod, sandbox, firstStart(pod)) }()
				}
				for range images {
					if err := <-done; err != nil {
						h.Error(err)
					}
				}
				if took := time.Since(started); took != want {
					h.Errorf("got duration %v, want %v", took, want)
				}
			}, func(config *cri.Config) { config.MaxParallelPulls = limit })
		})
	}
}

func TestMetrics_ImageRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	inBubble(t, func(h *harness) {
		for i, image := range []string{"web:1", "web:2", "Not A Name"} {
			pod := podWithImage(image, withUID(types.UID(fmt.Sprint("uid-", i))))
			_ = h.startFirst(h.Context(), pod)
		}
		always := newPod(withUID("uid-9"))
		always.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
		_ = h.startFirst(h.Context(), always)
	}, func(config *cri.Config) { config.Metrics = registry })
	const want = `
# HELP kubelet_image_manager_ensure_image_requests_total Number of images requested by containers.
# TYPE kubelet_image_manager_ensure_image_requests_total counter
kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="ifnotpresent",pull_required="true"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="true",pull_policy="ifnotpresent",pull_required="false"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="always",pull_required="true"} 1
kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="ifnotpresent",pull_required="unknown"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_image_manager_ensure_image_requests_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "kubelet_image_pull_duration_seconds"); err != nil || n != 1 {
		t.Errorf("got %d series, %v, want 1", n, err)
	}
}
