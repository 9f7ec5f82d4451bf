package node_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/podid"
)

// trial is one test on a node: its own namespace, and the recorder of all that happens in it.
type trial struct {
	*recorder.Recorder
	*machine
	t     *testing.T
	diary string // a folder of the machine for what containers write down
}

// tryOn begins a trial. When it ends, its pods are deleted and must disappear.
func tryOn(t *testing.T, m *machine) *trial {
	t.Helper()
	tr := &trial{machine: m, t: t, diary: t.TempDir()}
	tr.Recorder = recorder.Record(t, m.cluster, m.name, tr.createNamespace())
	t.Cleanup(tr.end)
	return tr
}

// tryAlone begins a trial on a node of its own, which the test may do to what it likes.
func tryAlone(t *testing.T, name string) *trial {
	t.Helper()
	m, err := startMachine(t.Context(), quiet.controlPlane(t), quiet.herald(t), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	return tryOn(t, m)
}

// createNamespace does what the controller manager would. The name is the test's, which may run more than once.
func (tr *trial) createNamespace() string {
	tr.t.Helper()
	name := regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(tr.t.Name()), "-")
	name = strings.Trim(name[max(0, len(name)-50):], "-") // its end: subtests begin alike
	admin := recorder.NewClient(tr.t, tr.cluster.AdminConfig()).CoreV1()
	namespace, err := admin.Namespaces().Create(tr.t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}, metav1.CreateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := admin.ServiceAccounts(namespace.Name).Create(tr.t.Context(), account, metav1.CreateOptions{}); err != nil {
		tr.t.Fatal(err)
	}
	return namespace.Name
}

func (tr *trial) end() {
	ctx := context.WithoutCancel(tr.t.Context())
	if tr.t.Failed() {
		tr.t.Logf("the agent said:\n%s", tr.words())
	}
	pods, err := tr.List(ctx)
	if err != nil {
		tr.t.Fatal(err)
	}
	grace := int64(1)
	for _, p := range pods.Items {
		_ = tr.Admin.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	}
	for _, p := range pods.Items {
		tr.AwaitDeleted(p.Name)
	}
}

// bind creates a pod that is bound to the node, as a scheduler would.
func (tr *trial) bind(p *v1.Pod) *v1.Pod {
	tr.t.Helper()
	p.Spec.NodeName = tr.NodeName
	p.Spec.ServiceAccountName = "default"
	if p.Spec.TerminationGracePeriodSeconds == nil {
		p.Spec.TerminationGracePeriodSeconds = new(int64(10))
	}
	created, err := tr.Admin.CoreV1().Pods(tr.Namespace).Create(tr.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		tr.t.Fatal(err)
	}
	return created
}

func (tr *trial) delete(name string) {
	tr.t.Helper()
	if err := tr.Admin.CoreV1().Pods(tr.Namespace).Delete(tr.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		tr.t.Fatal(err)
	}
}

// newPod is a pod of these containers.
func newPod(name string, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Containers: containers}}
}

// runs is a container that runs testpod with args.
func runs(name string, args ...string) v1.Container {
	return v1.Container{
		Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Command: append([]string{"/testpod"}, args...),
	}
}

// diaryPath is where containers find the diary.
const diaryPath = "/diary"

// keepsDiary mounts the trial's diary into all containers of the pod.
func (tr *trial) keepsDiary(p *v1.Pod) *v1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
		Name: "diary", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: tr.diary}},
	})
	mount := v1.VolumeMount{Name: "diary", MountPath: diaryPath}
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].VolumeMounts = append(p.Spec.InitContainers[i].VolumeMounts, mount)
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = append(p.Spec.Containers[i].VolumeMounts, mount)
	}
	return p
}

// written is what containers wrote into a file of the diary, line by line.
func (tr *trial) written(file string) []string {
	content, _ := os.ReadFile(filepath.Join(tr.diary, file)) // nothing was written yet
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
}

// exec runs testpod with args in a container of the pod.
func (tr *trial) exec(p *v1.Pod, container string, args ...string) string {
	tr.t.Helper()
	for _, c := range recorder.ContainerStatuses(&p.Status) {
		if c.Name != container {
			continue
		}
		_, id, _ := strings.Cut(c.ContainerID, "://")
		ctx, cancel := context.WithTimeout(tr.t.Context(), 20*time.Second)
		defer cancel()
		output, code, err := tr.runtime.Exec(ctx, observed.ContainerID{ID: id}, append([]string{"/testpod"}, args...))
		if err != nil || code != 0 {
			tr.t.Fatalf("%q in %s of %s: code %d, %v: %s", args, container, p.Name, code, err, output)
		}
		return string(output)
	}
	tr.t.Fatalf("pod %s has no container %s", p.Name, container)
	return ""
}

// sandboxOf is the newest sandbox of the pod.
func (tr *trial) sandboxOf(p *v1.Pod) string {
	tr.t.Helper()
	seen, err := tr.runtime.InspectPod(tr.t.Context(), podid.UID(p.UID))
	if err != nil {
		tr.t.Fatal(err)
	}
	newest, found := seen.NewestSandbox()
	if !found {
		tr.t.Fatalf("pod %s has no sandbox", p.Name)
	}
	return newest.ID
}

// mustLeaveNothing waits until the machine has nothing of any pod any more.
func (tr *trial) mustLeaveNothing() {
	tr.t.Helper()
	recorder.Eventually(tr.t, "what pods left behind", func() (string, bool) {
		left := tr.leftovers()
		return strings.Join(left, ", "), len(left) == 0
	})
}

// kubectl runs the real one in the trial's namespace as the administrator, and returns what it printed.
func (tr *trial) kubectl(args ...string) string {
	tr.t.Helper()
	return recorder.Kubectl(tr.t, tr.cluster.AdminKubeconfig(), append([]string{"--namespace", tr.Namespace}, args...)...)
}

func (tr *trial) kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	own := []string{"--kubeconfig", tr.cluster.AdminKubeconfig(), "--namespace", tr.Namespace}
	return exec.CommandContext(ctx, "kubectl", append(own, args...)...)
}

func isRunning(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }

func isReady(p *v1.Pod) bool {
	return isRunning(p) && recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

func hasPhase(phase v1.PodPhase) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool { return p.Status.Phase == phase }
}

// containerOf is the status of one container, or an empty one.
func containerOf(p *v1.Pod, name string) v1.ContainerStatus {
	for _, c := range recorder.ContainerStatuses(&p.Status) {
		if c.Name == name {
			return c
		}
	}
	return v1.ContainerStatus{}
}

// mustHaveWritten waits until the diary's file has exactly these lines.
func (tr *trial) mustHaveWritten(file string, want ...string) {
	tr.t.Helper()
	recorder.Eventually(tr.t, "what containers wrote into "+file, func() (string, bool) {
		got := tr.written(file)
		return fmt.Sprintf("%q, want %q", got, want), slices.Equal(got, want)
	})
}

// awaitLine waits until a line is in the diary's file: a container that is ready may not have done anything yet.
func (tr *trial) awaitLine(file, line string) {
	tr.t.Helper()
	recorder.Eventually(tr.t, "what containers wrote into "+file, func() (string, bool) {
		got := tr.written(file)
		return fmt.Sprintf("%q, without %q", got, line), slices.Contains(got, line)
	})
}
