package nodeagent_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/cgroup"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/podid"
)

// newAPIPod returns a pod of the API server that runs until it is stopped.
func newAPIPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec: v1.PodSpec{
			NodeName: "n1", HostNetwork: true, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []v1.Container{{Name: "main", Image: "host", Command: []string{"sleep", "600"}}},
		},
	}
}

// The agent knows the labels of its Node as of the last report, so it reads them again before it rejects a pod for them.
func TestADM11_LabelsChanged(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.AllowAPIPods, config.MaxPods = server.Config(), true, 10
	config.NodeStatusUpdateFrequency = 24 * time.Hour // no report during the test
	run(t, config, func(n *nodeagent.NodeAgent) {
		eventually(t, "the first report", func() bool { return n.Node.Object() != nil && len(n.Node.Object().Status.Conditions) > 0 })
		server.UpdateNode("n1", func(node *v1.Node) { node.Labels["disk"] = "ssd" })
		for name, disk := range map[string]string{"fits": "ssd", "other": "tape"} {
			pod := newAPIPod(name)
			pod.Spec.NodeSelector = map[string]string{"disk": disk}
			server.AddPod(pod)
		}
		eventually(t, "the pod that fits the new labels to run", func() bool {
			pod := server.Pod(podid.FullName{Namespace: "shop", Name: "fits"})
			if pod.Status.Phase == v1.PodFailed {
				t.Fatalf("the pod was rejected: %s", pod.Status.Message)
			}
			return pod.Status.Phase == v1.PodRunning
		})
		eventually(t, "the other pod to be rejected", func() bool {
			pod := server.Pod(podid.FullName{Namespace: "shop", Name: "other"})
			return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "NodeAffinity"
		})
		server.DeletePod(podid.FullName{Namespace: "shop", Name: "fits"}, 1)
		eventually(t, "the pod to end", func() bool { return server.Pod(podid.FullName{Namespace: "shop", Name: "fits"}) == nil })
	})
}

// A resize that the node does not accept must not change the weight of the burstable class.
func TestCGR10_RejectedResize(t *testing.T) {
	server := heraldtest.NewAPIServer()
	server.AddNode("n1")
	config := newConfig(t)
	config.API, config.AllowAPIPods = server.Config(), true
	run(t, config, func(n *nodeagent.NodeAgent) {
		name := podid.FullName{Namespace: "shop", Name: "web"}
		pod := newAPIPod(name.Name)
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
		server.AddPod(pod)
		eventually(t, "the pod to run", func() bool { return server.Pod(name).Status.Phase == v1.PodRunning })
		server.UpdatePod(name, func(pod *v1.Pod) {
			pod.Generation++
			pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1")
		})
		eventually(t, "the resize to be rejected", func() bool {
			for _, condition := range server.Pod(name).Status.Conditions {
				if condition.Type == v1.PodResizePending {
					return true
				}
			}
			return false
		})
		pods, complete := n.AllocatedPods()
		if got := cgroup.QOSResources(v1.PodQOSBurstable, pods, nil).CPUShares; len(pods) != 1 || !complete || *got != 102 {
			t.Errorf("got %d pods, complete %t, %d shares, want those of 100m, 102", len(pods), complete, *got)
		}
		server.DeletePod(name, 1)
		eventually(t, "the pod to end", func() bool { return server.Pod(name) == nil })
	})
}

func TestCGR32_ReservedTooMuch(t *testing.T) {
	config := newConfig(t, job)
	config.Reserved = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ei")}
	_, err := nodeagent.New(config)
	if err == nil || !strings.Contains(err.Error(), "kubeReserved and systemReserved together): memory: 1Ei reserved") {
		t.Errorf("got error %v, want one that names field and resource", err)
	}
}
