package sidebyside_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// patience is how long a pod may take to settle on a busy machine.
const hangTimeout = 90 * time.Second

// scenario is one pod, and what is done to it.
type scenario struct {
	// spec is the pod's, in YAML. A container without an image runs testpod.
	spec string
	// static has the pod come from a manifest.
	static bool
	// once says when act is due.
	actWhen condition
	act     action
	// settled is what both sides reach and stay at for long enough to be compared. The last version that is so is compared.
	settled condition
	// gone has the last version before the pod's removal compared.
	removed bool
}

type condition func(*v1.Pod) bool

func (sc *scenario) pod(name string, s *testNode) (*v1.Pod, error) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace, Labels: map[string]string{"app": name}}}
	if err := yaml.UnmarshalStrict([]byte(sc.spec), &p.Spec); err != nil {
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
		p.Spec.NodeName, p.Spec.ServiceAccountName = s.Node, "default"
	}
	return p, nil
}

// nameOn is what the pod is called on a side.
func (sc *scenario) nameOn(s *testNode, name string) string {
	if sc.static {
		return name + "-" + s.Node
	}
	return name
}

// play lets the pod live on a side until it has settled.
func (sc *scenario) run(ctx context.Context, name string, s *testNode) error {
	p, err := sc.pod(name, s)
	if err != nil {
		return err
	}
	if err := sc.createPod(ctx, p, s); err != nil {
		return err
	}
	name = sc.nameOn(s, name)
	if sc.act != nil {
		found, err := s.waitFor(ctx, name, sc.actWhen)
		if err != nil {
			return fmt.Errorf("before anything is done to it: %w", err)
		}
		if err := sc.act(ctx, s, found); err != nil {
			return err
		}
	}
	if _, err = s.waitFor(ctx, name, sc.settled); err == nil && sc.removed {
		err = s.waitRemoved(ctx, name)
	}
	return err
}

// bring creates the pod, or writes the manifest of a static one.
func (sc *scenario) createPod(ctx context.Context, p *v1.Pod, s *testNode) error {
	if !sc.static {
		_, err := s.Admin.CoreV1().Pods(s.Namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	content, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.agent.ManifestDir(), p.Name+".yaml"), content, 0o600)
}

// await returns the last version of the pod that is so.
func (s *testNode) waitFor(ctx context.Context, name string, is condition) (found *v1.Pod, err error) {
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hangTimeout, true, func(context.Context) (bool, error) {
		found = s.lastVersion(name, is)
		return found != nil, nil
	})
	if err != nil {
		err = fmt.Errorf("%s: pod %s did not come to it: %w; its story:\n%s", s.program, name, err, s.Story(name))
	}
	return found, err
}

// last is the last version of the pod that is so.
func (s *testNode) lastVersion(name string, is condition) (found *v1.Pod) {
	for _, version := range s.Versions(name) {
		if is(version) {
			found = version
		}
	}
	return found
}

func (s *testNode) waitRemoved(ctx context.Context, name string) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hangTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := s.Admin.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err == nil && len(list.Items) == 0, nil
	})
}

// act is what somebody does to a pod.
type action func(ctx context.Context, s *testNode, pod *v1.Pod) error

// deletes is kubectl delete, with the pod's own grace if there is no other.
func deletePod(grace *int64) action {
	return func(ctx context.Context, s *testNode, p *v1.Pod) error {
		return s.Admin.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	}
}

func patchPod(patch string, subresources ...string) action {
	return func(ctx context.Context, s *testNode, p *v1.Pod) error {
		_, err := s.Admin.CoreV1().Pods(p.Namespace).Patch(
			ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func openGate(gate string) action {
	return patchPod(fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, gate), "status")
}

// labels sets a label, and says to the recorder that it was not the agent's doing.
func addLabel(name string) action {
	return patchPod(fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"},"annotations":{%q:"1"}}}`, name, recorder.ForeignMark))
}

func changeImage(container, image string) action {
	return patchPod(fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, container, image))
}

// debugs is what kubectl debug does.
func addEphemeralContainers(ctx context.Context, s *testNode, p *v1.Pod) error {
	p = p.DeepCopy()
	for name, args := range map[string][]string{"shell": {"pause"}, "once": {"exit", "3"}} {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Args: args,
			},
		})
	}
	_, err := s.Admin.CoreV1().Pods(p.Namespace).UpdateEphemeralContainers(ctx, p.Name, p, metav1.UpdateOptions{})
	return err
}

// all holds when each of them does.
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
	return p.Status.Phase == v1.PodRunning && recorder.ConditionOf(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

func notReady(p *v1.Pod) bool {
	return recorder.ConditionOf(&p.Status, v1.PodReady).Status == v1.ConditionFalse
}

func containersReady(p *v1.Pod) bool {
	return recorder.ConditionOf(&p.Status, v1.ContainersReady).Status == v1.ConditionTrue
}

func labelled(name string) condition {
	return func(p *v1.Pod) bool { return p.Labels[name] != "" }
}

func deleting(p *v1.Pod) bool { return p.DeletionTimestamp != nil }

func phase(phase v1.PodPhase) condition {
	return func(p *v1.Pod) bool { return p.Status.Phase == phase }
}

// container holds when the container of that name is there and is so.
func container(name string, is func(*v1.ContainerStatus) bool) condition {
	return func(p *v1.Pod) bool {
		for _, c := range recorder.ContainersOf(&p.Status) {
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
