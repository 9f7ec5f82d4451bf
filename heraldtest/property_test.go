package heraldtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/kubeapi"
)

// move is one thing that happens in the cluster.
type move struct {
	Kind    string
	Pod     string
	Number  int64
	Settles bool // the watchers have time to see it before the next
}

type cluster struct {
	server *heraldtest.APIServer
	client *kubeapi.Client
}

var moves = map[string]func(ctx context.Context, c cluster, m move) error{
	"create": func(ctx context.Context, c cluster, m move) error {
		_, err := c.client.CreatePod(ctx, newPod(m.Pod, fmt.Sprintf("n%d", m.Number%2)))
		return ignore(err, apierrors.IsAlreadyExists)
	},
	"patch": func(ctx context.Context, c cluster, m move) error {
		patch := fmt.Sprintf(`{"status": {"message": "message %d"}}`, m.Number)
		_, err := c.client.PatchPodStatus(ctx, metav1.NamespaceDefault, m.Pod, []byte(patch))
		return ignore(err, apierrors.IsNotFound)
	},
	"move to another node": func(_ context.Context, c cluster, m move) error {
		c.server.UpdatePod(inDefault(m.Pod), func(pod *v1.Pod) { pod.Spec.NodeName = fmt.Sprintf("n%d", m.Number%2) })
		return nil
	},
	"delete": func(_ context.Context, c cluster, m move) error {
		c.server.DeletePod(inDefault(m.Pod), m.Number)
		return nil
	},
	"final delete": func(ctx context.Context, c cluster, m move) error {
		pod := c.server.Pod(inDefault(m.Pod))
		if pod == nil {
			return nil
		}
		return c.client.DeletePod(ctx, metav1.NamespaceDefault, m.Pod, pod.UID)
	},
	"cut": func(_ context.Context, c cluster, _ move) error {
		c.server.CutWatches()
		return nil
	},
	"compact": func(_ context.Context, c cluster, _ move) error {
		c.server.Compact()
		return nil
	},
}

func ignore(err error, expected func(error) bool) error {
	if expected(err) {
		return nil
	}
	return err
}

func TestWhateverHappensWatchersEndUpWithWhatTheServerHas(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(moves))
	drawn := rapid.Custom(func(t *rapid.T) move {
		return move{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Pod: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod"),
			Number: rapid.Int64Range(0, 3).Draw(t, "number"), Settles: rapid.Bool().Draw(t, "settles"),
		}
	})
	rapid.Check(t, func(check *rapid.T) {
		story := rapid.SliceOfN(drawn, 1, 30).Draw(check, "story")
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = unfold(t, story) })
		if wrong != "" {
			check.Fatal(wrong)
		}
	})
}

// unfold says what is wrong at the end of a story. A node is followed with streamed lists, another with plain ones.
func unfold(t *testing.T, story []move) string {
	t.Helper()
	server := heraldtest.NewAPIServer()
	c := cluster{server: server, client: newClient(t, server)}
	reflections := []reflection{reflect(t, server, "n0", false), reflect(t, server, "n1", true)}
	for _, m := range story {
		if err := moves[m.Kind](t.Context(), c, m); err != nil {
			return fmt.Sprintf("%s: %v", m.Kind, err)
		}
		if m.Settles {
			synctest.Wait()
		}
	}
	for _, r := range reflections {
		if diff := r.differs(server); diff != "" {
			return fmt.Sprintf("node %s (-server +reflector):\n%s", r.node, diff)
		}
	}
	return ""
}
