package e2e_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/status"
)

// A process that is stopped keeps its connections and answers nothing; when it goes on it finds requests that their senders
// gave up long ago (F9).
func TestF3AnAPIServerThatIsFrozenFor30Seconds(t *testing.T) {
	t.Parallel()
	r := openBehindProxy(t, recorder.ForTest(t), "frozen", status.Config{})
	pods := r.bindAllPlots(4)
	for _, p := range pods {
		r.SetPodStatus(p, plotOf(p.Name).status(p, 0))
	}
	for _, p := range pods {
		r.Await(p.Name, "running", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
	}
	r.faults.ClearRequests()
	start := time.Now()
	if err := r.Cluster.APIServer.Freeze(); err != nil {
		t.Fatal(err)
	}
	rounds := time.NewTicker(30 * time.Second / lastChapter)
	defer rounds.Stop()
	for chapter := 1; chapter <= lastChapter; chapter++ {
		for _, p := range pods {
			r.SetPodStatus(p, plotOf(p.Name).status(p, chapter))
		}
		<-rounds.C
	}
	trace := r.faults.Requests().Filter("*", "/pods/.+")
	lasted := time.Since(start)
	if err := r.Cluster.APIServer.Continue(); err != nil {
		t.Fatal(err)
	}
	for path, requests := range trace.ByPath() {
		if most := backedOff(lasted); len(requests) > most {
			t.Errorf("%s was asked for %d times in %v, want %d at most", path, len(requests), lasted, most)
		}
	}
	for _, p := range pods {
		end := r.Await(p.Name, "at the end of its story", func(p *v1.Pod) bool {
			return p.Status.Message == recorder.NumberedMessage(lastChapter, p.UID)
		})
		if plot := plotOf(p.Name); derive.IsTerminal(end.Status.Phase) != plot.hasEnded(lastChapter) {
			t.Errorf("pod %s is %s", p.Name, end.Status.Phase)
		}
	}
}

// bindAllPlots binds n pods for each plot of a pod that the API server knows.
func (r *reporter) bindAllPlots(n int) (pods []*v1.Pod) {
	r.t.Helper()
	for _, kind := range []string{"service", "job", "failure", "leaver"} {
		for i := range n {
			p := createPod(r.t, r.Admin, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%s", kind, i, r.NodeName)},
				Spec: v1.PodSpec{
					NodeName: r.NodeName, RestartPolicy: plots[kind].policy, Containers: []v1.Container{{Name: "main", Image: "web"}},
					ReadinessGates: []v1.PodReadinessGate{{ConditionType: "example.com/gate"}},
				},
			})
			pods = append(pods, r.known(p.UID))
		}
	}
	return pods
}
