package e2e_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/podid"
)

func TestAManifestIsSeenWithKubectlAsLongAsItIsThere(t *testing.T) {
	b := openBook(t, "seen")
	b.write("web", "nginx:1")
	mirror := b.mirror("web", "nginx:1")
	if got := kubectl(t, "get", "pod", "web-seen", "-o", "name"); got != "pod/web-seen" {
		t.Fatalf("kubectl prints %q", got)
	}
	if owner := metav1.GetControllerOf(mirror); owner == nil || owner.Kind != "Node" || owner.Name != "seen" {
		t.Fatalf("PM-18: the mirror's owner is %+v", owner)
	}
	b.remove("web")
	recorder.Eventually(t, "the mirror of a manifest that was removed", func() (string, bool) {
		_, err := admin(t).CoreV1().Pods("default").Get(t.Context(), "web-seen", metav1.GetOptions{})
		return "there", apierrors.IsNotFound(err)
	})
}

func TestPM26AndBUG30ADeletedMirrorComesBackExactlyOnce(t *testing.T) {
	tests := map[string][]string{
		"deleted gracefully": {"--wait=false"},
		"deleted by force":   {"--grace-period=0", "--force", "--wait=false"},
	}
	for name, flags := range tests {
		t.Run(name, func(t *testing.T) {
			b := openBook(t, map[bool]string{true: "forced", false: "graceful"}[len(flags) > 1])
			b.write("web", "nginx:1")
			first := b.mirror("web", "nginx:1")
			seen := lives(t, b.mirrorName("web"))
			kubectl(t, append([]string{"delete", "pod", b.mirrorName("web")}, flags...)...)
			recorder.Eventually(t, "the mirror after kubectl delete", func() (string, bool) {
				m := b.mirror("web", "nginx:1")
				return string(m.UID), m.UID != first.UID
			})
			moves := b.moved()
			b.settled()
			second := b.mirror("web", "nginx:1")
			if got := seen(second.UID); len(got) != 2 || got[0] != first.UID {
				t.Fatalf("the mirror had the lives %v, want %s and then %s", got, first.UID, second.UID)
			}
			if !slices.Equal(moves, []string{"ADD " + b.mirrorName("web")}) {
				t.Fatalf("the static pod was disturbed: %v", moves)
			}
		})
	}
}

func TestAnEditedManifestReplacesItsMirror(t *testing.T) {
	b := openBook(t, "edited")
	b.write("web", "nginx:1")
	first := b.mirror("web", "nginx:1")
	seen := lives(t, "web-edited")
	b.write("web", "nginx:2")
	b.mirror("web", "nginx:2")
	b.settled()
	second := b.mirror("web", "nginx:2")
	if got := seen(second.UID); len(got) != 2 || got[0] != first.UID {
		t.Fatalf("the mirror had the lives %v, want %s and then %s", got, first.UID, second.UID)
	}
}

func TestBUG11TheAPIServersDeathDisturbsNoStaticPodAndTheEndIsTheSame(t *testing.T) {
	b := openBook(t, "outage")
	for _, name := range []string{"stays", "goes", "changes"} {
		b.write(name, "nginx:1")
		b.mirror(name, "nginx:1")
	}
	if err := cluster.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	b.remove("goes")
	b.write("changes", "nginx:2")
	b.write("comes", "nginx:1")
	recorder.Eventually(t, "the address book without an API server", func() (string, bool) {
		_, goes := b.pods.GetPodByName("default", "goes-outage")
		_, comes := b.pods.GetPodByName("default", "comes-outage")
		changed, _ := b.pods.GetPodByName("default", "changes-outage")
		return "as before", !goes && comes && changed != nil && changed.Spec.Containers[0].Image == "nginx:2"
	})
	if err := cluster.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mirror("stays", "nginx:1")
	b.mirror("changes", "nginx:2")
	b.mirror("comes", "nginx:1")
	recorder.Eventually(t, "the pods of the node", func() (string, bool) {
		list, err := admin(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=outage"})
		if err != nil {
			return err.Error(), false
		}
		var names []string
		for _, p := range list.Items {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		return "mirrors not as they should be", slices.Equal(names, []string{"changes-outage", "comes-outage", "stays-outage"})
	})
	if moves := b.moved(); slices.Contains(moves, "REMOVE stays-outage") || slices.Contains(moves, "UPDATE stays-outage") {
		t.Fatalf("an untouched static pod was disturbed: %v", moves)
	}
}

func TestBUG15AForeignPodOfTheMirrorsNameIsLeftAloneAndReported(t *testing.T) {
	b := openBook(t, "taken")
	foreign, err := admin(t).CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-taken"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "theirs", Image: "theirs"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.write("web", "nginx:1")
	recorder.Eventually(t, "the report about a name that is taken", func() (string, bool) {
		conflicts := b.mirrors.Conflicts()
		return "nothing", len(conflicts) == 1 && conflicts[0].Name == podid.FullName{Namespace: "default", Name: "web-taken"}
	})
	now, err := admin(t).CoreV1().Pods("default").Get(t.Context(), "web-taken", metav1.GetOptions{})
	if err != nil || now.UID != foreign.UID || now.DeletionTimestamp != nil {
		t.Fatalf("the foreign pod was touched: %v, %v", now, err)
	}
	kubectl(t, "delete", "pod", "web-taken", "--grace-period=0", "--force")
	b.mirror("web", "nginx:1")
	recorder.Eventually(t, "the report about a name that is free again", func() (string, bool) {
		return "there", len(b.mirrors.Conflicts()) == 0
	})
}

// settled waits until the keeper of the mirrors has had its say: another name's mirror comes and goes after whatever it
// might still have been about to do for the first.
func (b *book) settled() {
	b.t.Helper()
	b.write("last", "nginx:1")
	b.mirror("last", "nginx:1")
	b.remove("last")
	recorder.Eventually(b.t, "the last mirror", func() (string, bool) {
		_, _, orphans := b.pods.GetPodsAndMirrorPods()
		_, err := admin(b.t).CoreV1().Pods("default").Get(b.t.Context(), b.mirrorName("last"), metav1.GetOptions{})
		return "there", len(orphans) == 0 && apierrors.IsNotFound(err)
	})
}
