// Package controllers_test runs the real controller manager against a node of Herald: what the controllers of a cluster
// conclude from the statuses that the node reports.
package controllers_test

import (
	"context"
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/controlplane"
	"github.com/heraldnode/herald/parity/internal/needs"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

const (
	nodeName  = "worker"
	namespace = "default"

	// hangTimeout only ends a hang.
	hangTimeout = 3 * time.Minute
)

// fixture is a cluster with a controller manager and one node of Herald.
type fixture struct {
	*testing.T
	client kubernetes.Interface
}

// newFixture starts the cluster, the node and the controller manager.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	needs.Containers(t)
	binary, err := controlplane.BuildControllerManager(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	herald, err := agents.BuildHerald(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cluster := recorder.ForTest(t)
	f := &fixture{T: t, client: recorder.NewClient(t, cluster.AdminConfig())}
	manager, err := cluster.NewControllerManager(binary,
		"replicaset-controller", "job-controller", "daemonset-controller", "garbage-collector-controller")
	if err != nil {
		t.Fatal(err)
	}
	f.start("controller manager", manager)
	runtime, err := containerd.Start(t.Context(), containerd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := herald.NewAgent(agents.Config{ControlPlane: cluster.ControlPlane, Containerd: runtime, NodeName: nodeName})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // in the reverse order: the agent stops before its runtime
		if err := runtime.Close(); err != nil {
			t.Error(err)
		}
		if err := agent.RemoveCgroups(); err != nil {
			t.Error(err)
		}
	})
	f.start("herald", agent.Server)
	return f
}

// start starts a server and stops it when the test ends.
func (f *fixture) start(name string, server *controlplane.Server) {
	f.Helper()
	if err := server.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("end of the log of %s:\n%s", name, server.LogTail())
		}
		if err := server.Stop(); err != nil {
			f.Error(err)
		}
	})
}

// eventually waits until the condition holds.
func (f *fixture) eventually(t *testing.T, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, hangTimeout, true, condition); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// pods returns the pods with the label app.
func (f *fixture) pods(ctx context.Context, app string) ([]v1.Pod, error) {
	list, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// eventCount returns how often an object has had an event with the reason.
func (f *fixture) eventCount(ctx context.Context, object, reason string) (count int32, err error) {
	list, err := f.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + object + ",reason=" + reason,
	})
	if err != nil {
		return 0, err
	}
	for _, event := range list.Items {
		count += max(1, event.Count)
	}
	return count, nil
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": name}}
}

// template returns the template of a pod that runs testpod with these arguments on the node.
func template(app string, policy v1.RestartPolicy, args ...string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{
			NodeName: nodeName, RestartPolicy: policy, TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
			Containers: []v1.Container{{Name: "main", Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Args: args}},
		},
	}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func newReplicaSet(name string, replicas int32, template v1.PodTemplateSpec) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: meta(name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector(name), Template: template},
	}
}

func TestControllers(t *testing.T) {
	f := newFixture(t)
	t.Run("all", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"ReplicaSet with unsupported volume": f.testUnsupportedVolume,
			"ReplicaSet is deleted":              f.testReplicaSetDeleted,
			"Job fails":                          f.testJobFails,
			"Job completes":                      f.testJobCompletes,
			"DaemonSet":                          f.testDaemonSet,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}

// A pod that cannot run on the node stays Pending: a failed one would be replaced at once, without end.
func (f *fixture) testUnsupportedVolume(t *testing.T) {
	const name = "unsupported"
	pod := template(name, v1.RestartPolicyAlways, "pause")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "absent"},
	}}}
	replicaSets := f.client.AppsV1().ReplicaSets(namespace)
	if _, err := replicaSets.Create(t.Context(), newReplicaSet(name, 1, pod), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, "a few attempts to mount the volume", func(ctx context.Context) (bool, error) {
		pods, err := f.pods(ctx, name)
		if err != nil || len(pods) == 0 {
			return false, err
		}
		count, err := f.eventCount(ctx, pods[0].Name, "FailedMount")
		return count >= 6, err
	})
	created, err := f.eventCount(t.Context(), name, "SuccessfulCreate")
	if err != nil {
		t.Fatal(err)
	}
	pods, err := f.pods(t.Context(), name)
	if err != nil || len(pods) != 1 || created != 1 || pods[0].Status.Phase != v1.PodPending {
		t.Errorf("got %d pods after %d creations (%v): %v; want one, Pending", len(pods), created, err, pods)
	}
}

func (f *fixture) testReplicaSetDeleted(t *testing.T) {
	const name, replicas = "deleted", 2
	replicaSets := f.client.AppsV1().ReplicaSets(namespace)
	set := newReplicaSet(name, replicas, template(name, v1.RestartPolicyAlways, "pause"))
	if _, err := replicaSets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, "all replicas to be ready", func(ctx context.Context) (bool, error) {
		set, err := replicaSets.Get(ctx, name, metav1.GetOptions{})
		return err == nil && set.Status.ReadyReplicas == replicas, err
	})
	policy := metav1.DeletePropagationForeground // until its pods are gone
	if err := replicaSets.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, "ReplicaSet and pods to be gone", func(ctx context.Context) (bool, error) {
		sets, err := replicaSets.List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil || len(sets.Items) > 0 {
			return false, err
		}
		pods, err := f.pods(ctx, name)
		return len(pods) == 0, err
	})
}

// jobCondition waits for a condition of the job.
func (f *fixture) jobCondition(t *testing.T, name string, want batchv1.JobConditionType) (job *batchv1.Job, condition batchv1.JobCondition) {
	t.Helper()
	f.eventually(t, "job to be "+string(want), func(ctx context.Context) (bool, error) {
		var err error
		if job, err = f.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		for _, condition = range job.Status.Conditions {
			if condition.Type == want && condition.Status == v1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	return job, condition
}

func (f *fixture) createJob(t *testing.T, name string, spec batchv1.JobSpec) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: meta(name), Spec: spec}
	if _, err := f.client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Each failed pod counts towards the limit once.
func (f *fixture) testJobFails(t *testing.T) {
	const name = "fails"
	f.createJob(t, name, batchv1.JobSpec{BackoffLimit: new(int32(1)), Template: template(name, v1.RestartPolicyNever, "exit", "1")})
	job, condition := f.jobCondition(t, name, batchv1.JobFailed)
	if condition.Reason != batchv1.JobReasonBackoffLimitExceeded || job.Status.Failed != 2 {
		t.Errorf("got %d failed pods and reason %s, want 2 and %s", job.Status.Failed, condition.Reason, batchv1.JobReasonBackoffLimitExceeded)
	}
}

func (f *fixture) testJobCompletes(t *testing.T) {
	const name = "completes"
	f.createJob(t, name, batchv1.JobSpec{
		Completions: new(int32(2)), Parallelism: new(int32(2)), BackoffLimit: new(int32(0)),
		Template: template(name, v1.RestartPolicyNever, "exit", "0"),
	})
	if job, _ := f.jobCondition(t, name, batchv1.JobComplete); job.Status.Succeeded != 2 || job.Status.Failed != 0 {
		t.Errorf("got %d succeeded and %d failed pods, want 2 and none", job.Status.Succeeded, job.Status.Failed)
	}
}

func (f *fixture) testDaemonSet(t *testing.T) {
	const name = "daemon"
	pod := template(name, v1.RestartPolicyAlways, "pause")
	pod.Spec.NodeName = "" // the controller selects the node by affinity, which the node verifies
	// No controller removes the taint that new nodes have until they are ready.
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	sets := f.client.AppsV1().DaemonSets(namespace)
	set := &appsv1.DaemonSet{ObjectMeta: meta(name), Spec: appsv1.DaemonSetSpec{Selector: selector(name), Template: pod}}
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, "pod to be created", func(ctx context.Context) (bool, error) {
		pods, err := f.pods(ctx, name)
		if err != nil || len(pods) == 0 {
			return false, err
		}
		return true, f.bind(ctx, &pods[0])
	})
	f.eventually(t, "DaemonSet to be ready", func(ctx context.Context) (bool, error) {
		set, err := sets.Get(ctx, name, metav1.GetOptions{})
		return err == nil && set.Status.NumberReady == 1 && set.Status.DesiredNumberScheduled == 1, err
	})
}

// bind does the work of the scheduler.
func (f *fixture) bind(ctx context.Context, pod *v1.Pod) error {
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: v1.ObjectReference{Kind: "Node", Name: nodeName}}
	return f.client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{})
}
