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

// wants is a pod whose image is not on the machine.
func wants(image string, change ...func(*v1.Pod)) *v1.Pod {
	pod := newPod(change...)
	pod.Spec.Containers[0].Image = image
	return pod
}

// start starts the pod's container in a sandbox that is there or made.
func (w *world) start(ctx context.Context, pod *v1.Pod) error {
	w.Helper()
	return w.StartContainer(ctx, pod, w.sandbox(pod), first(pod))
}

func retryAfter(err error) time.Duration {
	var told interface{ RetryAfter() time.Duration }
	if errors.As(err, &told) {
		return told.RetryAfter()
	}
	return 0
}

// takes makes a pull take a while.
func takes(d time.Duration) fault {
	return func(ctx context.Context, execute func() (any, error)) (any, error) {
		select {
		case <-time.After(d):
			return execute()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *world) pulls() int { return len(requests[*runtimeapi.PullImageRequest](w.fake)) }

func TestThePullPolicyDecidesWhoIsAsked(t *testing.T) {
	cases := map[string]struct {
		policy       v1.PullPolicy
		image        string
		looks, pulls int
		reason       string
	}{
		"always, present":         {v1.PullAlways, "web:1", 1, 1, ""}, // the look is for the size
		"always, absent":          {v1.PullAlways, "web:2", 1, 1, ""},
		"if not present, present": {v1.PullIfNotPresent, "web:1", 1, 0, ""},
		"if not present, absent":  {v1.PullIfNotPresent, "web:2", 2, 1, ""},
		"never, present":          {v1.PullNever, "web:1", 1, 0, ""},
		"never, absent":           {v1.PullNever, "web:2", 1, 0, "ErrImageNeverPull"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				pod := wants(test.image)
				pod.Spec.Containers[0].ImagePullPolicy = test.policy
				if err := w.start(w.Context(), pod); reasonOf(err) != test.reason {
					w.Errorf("it ended with %v", err)
				}
				if looks := len(requests[*runtimeapi.ImageStatusRequest](w.fake)); looks != test.looks || w.pulls() != test.pulls {
					w.Errorf("%d looks, %d pulls", looks, w.pulls())
				}
			})
		})
	}
}

func TestARuntimeThatCannotLookAtAnImageIsToldOf(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("ImageStatus", refuses(codes.Internal, "broken store"))
		err := w.start(w.Context(), newPod())
		if reasonOf(err) != "ImageInspectError" || err.Error() != `Failed to inspect image "web:1": broken store` {
			w.Errorf("it ended with %s: %v", reasonOf(err), err)
		}
		want := []string{
			`Warning InspectFailed spec.containers{web}: Failed to inspect image "web:1": broken store`,
			"Warning Failed spec.containers{web}: Error: ImageInspectError",
		}
		if diff := cmp.Diff(want, w.events()); diff != "" {
			w.Error(diff)
		}
	})
}

func TestAPullThatFailsPausesLongerEachTime(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := wants("web:2")
		for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			pause *= time.Second
			w.fake.next("PullImage", refuses(codes.Unknown, "manifest unknown"))
			before := w.pulls()
			if err := w.start(w.Context(), pod); reasonOf(err) != "ErrImagePull" || err.Error() != "manifest unknown" {
				w.Fatalf("it ended with %s: %v", reasonOf(err), err)
			}
			time.Sleep(time.Second)
			err := w.start(w.Context(), pod)
			if want := `Back-off pulling image "web:2": ErrImagePull: manifest unknown`; reasonOf(err) != "ImagePullBackOff" ||
				err.Error() != want || retryAfter(err) != pause-time.Second {
				w.Fatalf("it ended with %s: %v, again after %v instead of %v", reasonOf(err), err, retryAfter(err), pause-time.Second)
			}
			if w.pulls() != before+1 {
				w.Error("it was pulled within the pause")
			}
			time.Sleep(retryAfter(err))
		}
		story := w.events()
		want := []string{
			`Normal BackOff spec.containers{web}: Back-off pulling image "web:2"`,
			"Warning Failed spec.containers{web}: Error: ImagePullBackOff",
		}
		if diff := cmp.Diff(want, story[len(story)-2:]); diff != "" {
			w.Error(diff)
		}
		if err := w.start(w.Context(), pod); err != nil {
			w.Error("after the pause it is not tried:", err)
		}
	})
}

func TestAnOldFailureDoesNotCount(t *testing.T) {
	inWorld(t, func(w *world) {
		pod := wants("web:2")
		for _, wait := range []time.Duration{10 * time.Second, 10*time.Minute + time.Second, 0} {
			w.fake.next("PullImage", refuses(codes.Unknown, "no"))
			if err := w.start(w.Context(), pod); reasonOf(err) != "ErrImagePull" {
				w.Fatal(err)
			}
			time.Sleep(wait)
		}
		if err := w.start(w.Context(), pod); retryAfter(err) != 10*time.Second {
			w.Errorf("it ended with %v, again after %v", err, retryAfter(err))
		}
	})
}

func TestAPodMadeAnewIsNotHeldBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", refuses(codes.Unknown, "no"))
		if err := w.start(w.Context(), wants("web:2")); reasonOf(err) != "ErrImagePull" {
			w.Fatal(err)
		}
		if err := w.start(w.Context(), wants("web:2", named("uid-2"))); err != nil {
			w.Error(err)
		}
		if err := w.start(w.Context(), wants("web:3")); err != nil {
			w.Error("another image is held back:", err)
		}
	})
}

func named(uid types.UID) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Name, pod.UID = string(uid), uid }
}

func TestWhatTheRuntimeSaysOfAPullIsItsReason(t *testing.T) {
	cases := map[string][2]string{
		"RegistryUnavailable: timeout": {"RegistryUnavailable", "image pull failed for web:2 because the registry is unavailable: timeout"},
		"SignatureValidationFailed":    {"SignatureValidationFailed", "image pull failed for web:2 because the signature validation failed"},
	}
	for said, want := range cases {
		t.Run(said, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.fake.next("PullImage", refuses(codes.Unknown, said))
				if err := w.start(w.Context(), wants("web:2")); reasonOf(err) != want[0] || err.Error() != want[1] {
					w.Errorf("it ended with %s: %v", reasonOf(err), err)
				}
			})
		})
	}
}

func TestPodsThatWantOneImageShareItsPull(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", takes(90*time.Second))
		ended := make(chan error)
		const pods = 5
		for i := range pods {
			pod := wants("web:2", named(types.UID(fmt.Sprint("uid-", i))))
			sandbox := w.sandbox(pod)
			go func() { ended <- w.StartContainer(w.Context(), pod, sandbox, first(pod)) }()
			time.Sleep(time.Second)
		}
		for range pods {
			if err := <-ended; err != nil {
				w.Error(err)
			}
		}
		if w.pulls() != 1 {
			w.Errorf("%d pulls", w.pulls())
		}
		told := map[string]bool{}
		for _, line := range w.events() {
			told[line] = true
		}
		for i := range pods {
			want := fmt.Sprintf(`Normal Pulled spec.containers{web}: Successfully pulled image "web:2" in 1m30s `+
				"(%v including waiting). Image size: 2048 bytes.", 90*time.Second-time.Duration(i)*time.Second)
			if !told[want] {
				w.Errorf("no event %q in %q", want, w.events())
			}
		}
	})
}

func TestBUG27WhoLeavesASharedPullLeavesItToTheOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", takes(time.Minute))
		type leaver struct {
			cancel context.CancelFunc
			ended  chan error
		}
		var all []leaver
		for i := range 2 {
			pod := wants("web:2", named(types.UID(fmt.Sprint("uid-", i))))
			sandbox := w.sandbox(pod)
			ctx, cancel := context.WithCancel(w.Context())
			one := leaver{cancel, make(chan error, 1)}
			all = append(all, one)
			go func() { one.ended <- w.StartContainer(ctx, pod, sandbox, first(pod)) }()
			synctest.Wait()
		}
		defer all[1].cancel()
		begun := time.Now()
		all[0].cancel() // the one who has begun it
		if err := <-all[0].ended; !errors.Is(err, context.Canceled) || reasonOf(err) != "" || time.Since(begun) > 0 {
			w.Errorf("who left ended with %v, %v later", err, time.Since(begun))
		}
		if err := <-all[1].ended; err != nil || w.pulls() != 1 {
			w.Errorf("who stayed ended with %v after %d pulls", err, w.pulls())
		}
	})
}

func TestAPullThatNobodyWaitsForEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		ended := make(chan error, 1)
		w.fake.next("PullImage", func(ctx context.Context, _ func() (any, error)) (any, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		pod := wants("web:2")
		ctx, cancel := context.WithCancel(w.Context())
		begun := time.Now()
		time.AfterFunc(time.Second, cancel)
		if err := w.start(ctx, pod); !errors.Is(err, context.Canceled) {
			w.Errorf("it ended with %v", err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(begun) > time.Second {
			w.Errorf("the runtime's pull ended with %v after %v", err, time.Since(begun))
		}
		if err := w.start(w.Context(), pod); err != nil {
			w.Error("who left is not let in again at once:", err)
		}
	})
}

func TestAPullThatHangsEndsAfterAnHour(t *testing.T) {
	inWorld(t, func(w *world) {
		w.fake.next("PullImage", hangs)
		begun := time.Now()
		if err := w.start(w.Context(), wants("web:2")); reasonOf(err) != "ErrImagePull" || time.Since(begun) != time.Hour {
			w.Errorf("it ended with %v after %v", err, time.Since(begun))
		}
	})
}

func TestNoMorePullsAtOnceThanAllowed(t *testing.T) {
	for limit, want := range map[int]time.Duration{0: time.Minute, 1: 4 * time.Minute, 2: 2 * time.Minute} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			inWorld(t, func(w *world) {
				begun, ended := time.Now(), make(chan error)
				const images = 4
				for i := range images {
					w.fake.next("PullImage", takes(time.Minute))
					pod := wants(fmt.Sprint("image:", i), named(types.UID(fmt.Sprint("uid-", i))))
					sandbox := w.sandbox(pod)
					go func() { ended <- w.StartContainer(w.Context(), pod, sandbox, first(pod)) }()
				}
				for range images {
					if err := <-ended; err != nil {
						w.Error(err)
					}
				}
				if took := time.Since(begun); took != want {
					w.Errorf("they took %v, not %v", took, want)
				}
			}, func(config *cri.Config) { config.MaxParallelPulls = limit })
		})
	}
}

func TestRequestsForImagesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	inWorld(t, func(w *world) {
		for i, image := range []string{"web:1", "web:2", "Not A Name"} {
			pod := wants(image, named(types.UID(fmt.Sprint("uid-", i))))
			_ = w.start(w.Context(), pod)
		}
		always := newPod(named("uid-9"))
		always.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
		_ = w.start(w.Context(), always)
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
		t.Errorf("%d series of pulls: %v", n, err)
	}
}
