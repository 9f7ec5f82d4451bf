package sidebyside_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/parity/agents"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// hangTimeout is how long a pod may take to settle. It only ends a hang: a busy machine must not fail a test.
const hangTimeout = 6 * time.Minute

// scenario is one pod and what happens to it.
type scenario struct {
	// spec is the pod's spec in YAML. A container without an image runs testpod.
	spec string
	// slow says that the pod waits for a back-off or a deadline. Slow scenarios start first.
	slow bool
	// static runs the pod from a manifest.
	static bool
	// unbound creates the pod before the agents start, without a node. Its runtime class is gone when it is bound.
	unbound bool
	// after names the scenario whose pod must be ready before this one is created.
	after string
	// actWhen says when act runs, and actAfter the reason of an event that must have been recorded before.
	actWhen  condition
	actAfter string
	act      action
	// settled is the state that both sides reach and keep long enough to be compared. The last matching version is
	// compared.
	settled condition
	// event is the reason of an event that both sides must have recorded before they are compared.
	event string
	// kubeletEvent is the reason of an event that the kubelet must have recorded.
	kubeletEvent string
	// killedEarly says that the container is killed while it starts, so that its exit code depends on whether it handles signals yet.
	// Exit codes are not compared.
	killedEarly bool
	// removed waits for the pod's removal and compares the last version before it.
	removed bool
}

type condition func(*v1.Pod) bool

func (sc *scenario) pod(name string, program agents.Program) (*v1.Pod, error) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespaceName(program), Labels: map[string]string{"app": name}}}
	spec := strings.ReplaceAll(sc.spec, nodePlaceholder, nodeName(program))
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		return nil, err
	}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if containers[i].Image == "" {
				containers[i].Image, containers[i].ImagePullPolicy = containerd.TestpodImage, v1.PullIfNotPresent
			}
		}
	}
	if !sc.static {
		p.Spec.ServiceAccountName = "default"
	}
	if !sc.static && !sc.unbound {
		p.Spec.NodeName = nodeName(program)
	}
	return p, nil
}

// versions returns the versions of the pod on a node, without what is not compared.
func (sc *scenario) versions(n *testNode, name string) []*v1.Pod {
	versions := n.Versions(sc.nameOn(n, name))
	if !sc.killedEarly {
		return versions
	}
	stripped := make([]*v1.Pod, len(versions))
	for i, version := range versions {
		stripped[i] = version.DeepCopy()
		for _, c := range recorder.ContainerStatuses(&stripped[i].Status) {
			for _, state := range []v1.ContainerState{c.State, c.LastTerminationState} {
				if state.Terminated != nil { // shared with the version, unlike c
					state.Terminated.ExitCode = 0
				}
			}
		}
	}
	return stripped
}

// nodePlaceholder stands for the name of the node in a spec.
const nodePlaceholder = "{node}"

// nameOn returns the pod's name on a node.
func (sc *scenario) nameOn(n *testNode, name string) string {
	if sc.static {
		return name + "-" + n.NodeName
	}
	return name
}

// run runs the pod on a node until it has settled.
func (sc *scenario) run(ctx context.Context, name string, n *testNode) error {
	p, err := sc.pod(name, n.program)
	if err != nil {
		return err
	}
	if sc.after != "" {
		if _, err := n.waitFor(ctx, sc.after, ready); err != nil {
			return err
		}
	}
	if err := sc.createPod(ctx, p, n); err != nil {
		return err
	}
	name = sc.nameOn(n, name)
	if sc.act != nil {
		found, err := n.waitFor(ctx, name, sc.actWhen)
		if err != nil {
			return fmt.Errorf("before the action: %w", err)
		}
		if err := n.waitForEvent(ctx, name, sc.actAfter); err != nil {
			return err
		}
		if err := sc.act(ctx, n, found); err != nil {
			return err
		}
	}
	if _, err = n.waitFor(ctx, name, sc.settled); err == nil && sc.removed {
		err = n.waitRemoved(ctx, name)
	}
	return err
}

// createPod creates the pod, binds it if it exists, or writes the manifest of a static pod.
func (sc *scenario) createPod(ctx context.Context, p *v1.Pod, n *testNode) error {
	pods := n.Admin.CoreV1().Pods(n.Namespace)
	switch {
	case sc.unbound:
		binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: v1.ObjectReference{Kind: "Node", Name: n.NodeName}}
		return pods.Bind(ctx, binding, metav1.CreateOptions{})
	case !sc.static:
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		return err
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	content, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.agent.ManifestDir(), p.Name+".yaml"), content, 0o600)
}

// waitFor returns the last matching version of the pod.
func (n *testNode) waitFor(ctx context.Context, name string, is condition) (found *v1.Pod, err error) {
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hangTimeout, true, func(context.Context) (bool, error) {
		found = n.lastVersion(name, is)
		return found != nil, nil
	})
	if err != nil {
		err = fmt.Errorf("%s: pod %s did not reach the state: %w; history:\n%s", n.program, name, err, n.History(name))
	}
	return found, err
}

// lastVersion returns the last matching version of the pod, or nil.
func (n *testNode) lastVersion(name string, is condition) (found *v1.Pod) {
	for _, version := range n.Versions(name) {
		if is(version) {
			found = version
		}
	}
	return found
}

// waitForEvent waits for an event of the pod with that reason. An empty reason needs none.
func (n *testNode) waitForEvent(ctx context.Context, name, reason string) error {
	if reason == "" {
		return nil
	}
	selected := metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		events, err := n.Admin.CoreV1().Events(n.Namespace).List(ctx, selected)
		return err == nil && len(events.Items) > 0, nil
	})
	if err != nil {
		err = fmt.Errorf("%s: pod %s has no event %s: %w; history:\n%s", n.program, name, reason, err, n.History(name))
	}
	return err
}

func (n *testNode) waitRemoved(ctx context.Context, name string) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := n.Admin.CoreV1().Pods(n.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err == nil && len(list.Items) == 0, nil
	})
}

// action is something that a user does to a pod.
type action func(ctx context.Context, n *testNode, pod *v1.Pod) error

// deletePod is kubectl delete. A nil grace means the pod's own.
func deletePod(grace *int64) action {
	return func(ctx context.Context, n *testNode, p *v1.Pod) error {
		return n.Admin.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	}
}

func patchPod(patch string, subresources ...string) action {
	return func(ctx context.Context, n *testNode, p *v1.Pod) error {
		_, err := n.Admin.CoreV1().Pods(p.Namespace).Patch(
			ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func openGate(gate string) action {
	return patchPod(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, gate), "status")
}

// addLabel sets a label and marks the write for the recorder as not the agent's.
func addLabel(name string) action {
	return patchPod(fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"},"annotations":{%q:"1"}}}`, name, recorder.ForeignWriteAnnotation))
}

func changeImage(container, image string) action {
	return patchPod(fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, container, image))
}

// createRuntimeClass creates the class that the pod names.
func createRuntimeClass(handler string) action {
	return func(ctx context.Context, n *testNode, p *v1.Pod) error {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: *p.Spec.RuntimeClassName}, Handler: handler}
		_, err := n.Admin.NodeV1().RuntimeClasses().Create(ctx, class, metav1.CreateOptions{})
		return err
	}
}

// addEphemeralContainers does what kubectl debug does.
func addEphemeralContainers(ctx context.Context, n *testNode, p *v1.Pod) error {
	p = p.DeepCopy()
	for name, args := range map[string][]string{"shell": {"pause"}, "once": {"exit", "3"}} {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Args: args,
			},
		})
	}
	_, err := n.Admin.CoreV1().Pods(p.Namespace).UpdateEphemeralContainers(ctx, p.Name, p, metav1.UpdateOptions{})
	return err
}

// all matches if every condition matches.
func all(conditions ...condition) condition {
	return func(p *v1.Pod) bool {
		for _, is := range conditions {
			if !is(p) {
				return false
			}
		}
		return true
	}
}

func ready(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodRunning && recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

func notReady(p *v1.Pod) bool {
	return recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionFalse
}

func containersReady(p *v1.Pod) bool {
	return recorder.PodCondition(&p.Status, v1.ContainersReady).Status == v1.ConditionTrue
}

func labelled(name string) condition {
	return func(p *v1.Pod) bool { return p.Labels[name] != "" }
}

func deleting(p *v1.Pod) bool { return p.DeletionTimestamp != nil }

func phase(phase v1.PodPhase) condition {
	return func(p *v1.Pod) bool { return p.Status.Phase == phase }
}

// container matches if the container exists and matches.
func container(name string, is func(*v1.ContainerStatus) bool) condition {
	return func(p *v1.Pod) bool {
		for _, c := range recorder.ContainerStatuses(&p.Status) {
			if c.Name == name {
				return is(&c)
			}
		}
		return false
	}
}

func running(name string) condition {
	return container(name, func(c *v1.ContainerStatus) bool { return c.State.Running != nil })
}

func terminated(name string) condition {
	return container(name, func(c *v1.ContainerStatus) bool { return c.State.Terminated != nil })
}

func waiting(name, reason string) condition {
	return container(name, func(c *v1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == reason
	})
}

func restarted(name string) condition {
	return container(name, func(c *v1.ContainerStatus) bool { return c.RestartCount > 0 })
}

func crashLoop(name string) condition { return all(restarted(name), waiting(name, "CrashLoopBackOff")) }
