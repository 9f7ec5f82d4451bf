package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/status"
)

// While requests fail, Sync says how far behind the API server is and why. Whenever it says synced, what the node owns is equal in the
// cached status and in the object that the API server returns.
func TestQ3_Outage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rule   *fault.Rule
		reason string
	}{
		"frozen":     {fault.On("*", "/pods/.+").Hang(), "API server does not answer: timeout"},
		"refusing":   {fault.On("*", "/pods/.+").Refuse(), "API server does not answer: "},
		"failing":    {fault.On("*", "/pods/.+").Reply(http.StatusInternalServerError), "API server fails: "},
		"throttling": {fault.On("*", "/pods/.+").Reply(http.StatusTooManyRequests, fault.RetryAfter(time.Second)), "limited: "},
		"reply-lost": {fault.On("PATCH", "/pods/.+").LoseReply(), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newProxyHarness(t, cluster, "sync-"+name, status.Config{RequestTimeout: 2 * time.Second})
			pods := h.addPods(3)
			for _, p := range pods {
				h.SetPodStatus(p, restartedStatus(p, 1))
			}
			h.awaitSynced(pods)
			heal := h.faults.Add(test.rule)
			defer heal()
			h.awaitBehind(pods, test.reason)
			heal()
			h.awaitSynced(pods)
		})
	}
}

// awaitBehind sets statuses until each pod has failed to send several, unless they reach the API server all the same.
func (h *statusHarness) awaitBehind(pods []*v1.Pod, reason string) {
	h.t.Helper()
	change := 1
	heraldtest.Eventually(h.t, func() error {
		if change < 20 {
			change++
		}
		for _, p := range pods {
			h.SetPodStatus(h.awaitKnown(p.UID), restartedStatus(p, change))
		}
		for _, p := range pods {
			got := h.checkSynced(p)
			if reason == "" && change >= 20 {
				continue
			}
			if got.State != status.SyncWaiting || got.Behind < 3 || got.Failures < 2 || !strings.HasPrefix(got.Reason, reason) {
				return fmt.Errorf("%s is %s, %d behind after %d failures: %q", p.Name, got.State, got.Behind, got.Failures, got.Reason)
			}
			if got.SyncedVersion >= got.Version || got.Since.IsZero() {
				h.t.Errorf("%s: got version %d, acknowledged %d, behind since %v", p.Name, got.Version, got.SyncedVersion, got.Since)
			}
		}
		return nil
	})
}

// awaitSynced waits until all pods are synced.
func (h *statusHarness) awaitSynced(pods []*v1.Pod) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		for _, p := range pods {
			if got := h.checkSynced(p); got.State != status.SyncSynced || got.Behind != 0 {
				return fmt.Errorf("%s is %s, %d behind: %q", p.Name, got.State, got.Behind, got.Reason)
			}
		}
		return nil
	})
}

// checkSynced returns the state of a pod. If it is synced before and after a read of the object, with the same version, the object must
// have the cached status: nobody else writes it.
func (h *statusHarness) checkSynced(p *v1.Pod) status.Sync {
	h.t.Helper()
	before, _ := h.Sync(p.UID)
	object, err := h.Admin.CoreV1().Pods(p.Namespace).Get(h.t.Context(), p.Name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	cached, _ := h.GetPodStatus(p.UID)
	after, _ := h.Sync(p.UID)
	if before.State != status.SyncSynced || after.State != status.SyncSynced || before.Version != after.Version {
		return after
	}
	if diff := heraldtest.DiffOwnedStatus(&object.Status, &cached); diff != "" {
		h.t.Errorf("%s is synced at version %s, but version %s differs: %s", p.Name, after.ResourceVersion, object.ResourceVersion, diff)
	}
	return after
}
