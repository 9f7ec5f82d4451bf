package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/parity/containerd"
	"github.com/heraldnode/herald/parity/internal/recorder"
	"github.com/heraldnode/herald/podid"
)

// harness is one test on a node, with its own namespace and a recorder of all that happens in it.
type harness struct {
	*recorder.Recorder
	*testNode
	t       *testing.T
	workDir string // directory of the machine where containers log their starts and exits
}

// newHarness starts a test on the node. When the test ends, its pods are deleted and must disappear.
func newHarness(t *testing.T, n *testNode) *harness {
	t.Helper()
	h := &harness{testNode: n, t: t, workDir: t.TempDir()}
	h.Recorder = recorder.Record(t, n.cluster, n.name, h.createNamespace())
	t.Cleanup(h.cleanUp)
	return h
}

// newOwnNode starts a test on its own node, which the test may break.
func newOwnNode(t *testing.T, name string) *harness {
	t.Helper()
	n, err := startTestNode(t.Context(), shared.controlPlane(t), shared.herald(t), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return newHarness(t, n)
}

// seedEnv is an environment variable with the seed of newRandom, to repeat a failed test.
const seedEnv = "HERALD_TEST_SEED"

// newRandom returns a random number generator and logs its seed.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if value := os.Getenv(seedEnv); value != "" {
		var err error
		if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("random seed: %d (set %s to repeat)", seed, seedEnv)
	return rand.New(rand.NewPCG(seed, 0))
}

// sleepRandom sleeps for a random time, so that the next action happens at any moment of the pods' lifecycle.
func sleepRandom(random *rand.Rand, limit time.Duration) {
	time.Sleep(time.Duration(random.Int64N(int64(limit))))
}

// createNamespace creates a namespace and its default service account, as the controller manager would. The name is derived from
// the test's, which may run more than once.
func (h *harness) createNamespace() string {
	h.t.Helper()
	name := regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(h.t.Name()), "-")
	name = strings.Trim(name[max(0, len(name)-50):], "-") // the end: names of subtests start alike
	admin := recorder.NewClient(h.t, h.cluster.AdminConfig()).CoreV1()
	namespace, err := admin.Namespaces().Create(h.t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := admin.ServiceAccounts(namespace.Name).Create(h.t.Context(), account, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	return namespace.Name
}

// cleanUp deletes the pods and waits until they are gone.
func (h *harness) cleanUp() {
	ctx := context.WithoutCancel(h.t.Context())
	if h.t.Failed() {
		h.t.Logf("log of the agent:\n%s", h.logTail())
	}
	pods, err := h.List(ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	grace := int64(1)
	for _, p := range pods.Items {
		_ = h.Admin.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	}
	for _, p := range pods.Items {
		h.AwaitDeleted(p.Name)
	}
}

// createPod creates a pod that is bound to the node, as a scheduler would.
func (h *harness) createPod(p *v1.Pod) *v1.Pod {
	h.t.Helper()
	p.Spec.NodeName = h.NodeName
	p.Spec.ServiceAccountName = "default"
	if p.Spec.TerminationGracePeriodSeconds == nil {
		p.Spec.TerminationGracePeriodSeconds = new(int64(10))
	}
	created, err := h.Admin.CoreV1().Pods(h.Namespace).Create(h.t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return created
}

func (h *harness) deletePod(name string) {
	h.t.Helper()
	if err := h.Admin.CoreV1().Pods(h.Namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

// newPod returns a pod with these containers. It is not created yet.
func newPod(name string, containers ...v1.Container) *v1.Pod {
	return heraldtest.NewPod(name, heraldtest.WithContainers(containers...), func(pod *v1.Pod) {
		pod.Namespace, pod.UID = "", "" // set when it is created
	})
}

// newJob returns a pod with one container that is not restarted.
func newJob(name string, container v1.Container) *v1.Pod {
	job := newPod(name, container)
	job.Spec.RestartPolicy = v1.RestartPolicyNever
	return job
}

// newContainer returns a container that runs testpod with these arguments.
func newContainer(name string, args ...string) v1.Container {
	return v1.Container{Name: name, Image: containerd.TestpodImage, ImagePullPolicy: v1.PullIfNotPresent, Command: testpod(args...)}
}

// newSidecar turns a container into a sidecar.
func newSidecar(container v1.Container) v1.Container {
	container.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return container
}

// testpod returns the command line of testpod.
func testpod(args ...string) []string { return append([]string{"/testpod"}, args...) }

// workPath is where the work directory is mounted in containers.
const workPath = "/work"

// mountWorkDir mounts the work directory into all containers of the pod.
func (h *harness) mountWorkDir(p *v1.Pod) *v1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
		Name: "work", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: h.workDir}},
	})
	mount := v1.VolumeMount{Name: "work", MountPath: workPath}
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].VolumeMounts = append(p.Spec.InitContainers[i].VolumeMounts, mount)
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = append(p.Spec.Containers[i].VolumeMounts, mount)
	}
	return p
}

// readWorkLog returns the lines of a file in the work directory.
func (h *harness) readWorkLog(file string) []string {
	content, _ := os.ReadFile(filepath.Join(h.workDir, file)) // it may not exist yet
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
}

// awaitWorkLog waits until a file in the work directory has exactly these lines.
func (h *harness) awaitWorkLog(file string, want ...string) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		if got := h.readWorkLog(file); !slices.Equal(got, want) {
			return fmt.Errorf("work log %s: got %q, want %q", file, got, want)
		}
		return nil
	})
}

// awaitWorkLine waits until a file in the work directory has this line: a ready container may not have written it yet.
func (h *harness) awaitWorkLine(file, line string) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		if got := h.readWorkLog(file); !slices.Contains(got, line) {
			return fmt.Errorf("work log %s: got %q, want %q in it", file, got, line)
		}
		return nil
	})
}

// exec runs testpod with these arguments in a container of the pod, and returns its output.
func (h *harness) exec(p *v1.Pod, container string, args ...string) string {
	h.t.Helper()
	status := containerStatus(p, container)
	_, id, found := strings.Cut(status.ContainerID, "://")
	if !found {
		h.t.Fatalf("pod %s has no container %s", p.Name, container)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	output, code, err := h.runtime.Exec(ctx, observed.ContainerID{ID: id}, testpod(args...))
	if err != nil || code != 0 {
		h.t.Fatalf("exec %q in container %s of pod %s: code %d, %v: %s", args, container, p.Name, code, err, output)
	}
	return string(output)
}

// newestSandbox returns the ID of the pod's newest sandbox.
func (h *harness) newestSandbox(p *v1.Pod) string {
	h.t.Helper()
	observedPod, err := h.runtime.InspectPod(h.t.Context(), podid.UID(p.UID))
	if err != nil {
		h.t.Fatal(err)
	}
	newest, found := observedPod.NewestSandbox()
	if !found {
		h.t.Fatalf("pod %s has no sandbox", p.Name)
	}
	return newest.ID
}

// awaitClean waits until nothing on the machine belongs to a pod.
func (h *harness) awaitClean() {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		if left := h.leftovers(); len(left) > 0 {
			return errors.New("left on the machine: " + strings.Join(left, ", "))
		}
		return nil
	})
}

// awaitEvent waits for an event of the pod with this reason and text.
func (h *harness) awaitEvent(podName, reason, text string) {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		events, err := h.Admin.CoreV1().Events(h.Namespace).List(h.t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + podName,
		})
		if err != nil {
			return err
		}
		var got []string
		for _, event := range events.Items {
			if event.Reason == reason && strings.Contains(event.Message, text) {
				return nil
			}
			got = append(got, event.Reason+": "+event.Message)
		}
		return fmt.Errorf("events of pod %s: got %q, want %s: %s", podName, got, reason, text)
	})
}

// awaitResponse waits until a GET request succeeds.
func (h *harness) awaitResponse(url string) {
	h.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	heraldtest.Eventually(h.t, func() error {
		request, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: got %s, want OK", url, response.Status)
		}
		return nil
	})
}

// kubectl runs kubectl in the test's namespace as administrator, and returns its output.
func (h *harness) kubectl(args ...string) string {
	h.t.Helper()
	return recorder.Kubectl(h.t, h.cluster.AdminKubeconfig(), append([]string{"--namespace", h.Namespace}, args...)...)
}

func (h *harness) kubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{"--kubeconfig", h.cluster.AdminKubeconfig(), "--namespace", h.Namespace}
	return exec.CommandContext(ctx, "kubectl", append(flags, args...)...)
}

// herald runs a query against the node's agent, and returns its output.
func (h *harness) herald(args ...string) string {
	h.t.Helper()
	out, err := h.heraldCommand(h.t.Context(), args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("herald %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (h *harness) heraldCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, h.program, append(args, "--namespace", h.Namespace, "--server", h.config.socket())...)
}

// commandOutput is the output of a command that watches a pod.
type commandOutput struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (o *commandOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(line)
}

func (o *commandOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

func (h *harness) watchKubectl(name string) *commandOutput {
	h.t.Helper()
	return h.follow(h.kubectlCommand(h.t.Context(), "get", "pod", "--watch", "--field-selector", "metadata.name="+name))
}

func (h *harness) watchHerald(name string) *commandOutput {
	h.t.Helper()
	heraldtest.Eventually(h.t, func() error {
		out, err := h.heraldCommand(h.t.Context(), "get", "pods").CombinedOutput()
		if err != nil {
			return fmt.Errorf("herald get pods: %w: %s", err, out)
		}
		return nil
	})
	return h.follow(h.heraldCommand(h.t.Context(), "get", "pods", name, "--watch"))
}

// follow runs a command until the test ends.
func (h *harness) follow(cmd *exec.Cmd) *commandOutput {
	h.t.Helper()
	output := &commandOutput{}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the test is aborted
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cmd.Wait() }) // the test's context ends it
	return output
}

// awaitOutput waits until the command has printed these texts in this order.
func (o *commandOutput) awaitOutput(t *testing.T, texts ...string) {
	t.Helper()
	heraldtest.Eventually(t, func() error {
		output := o.String()
		rest := output
		for _, text := range texts {
			_, after, found := strings.Cut(rest, text)
			if !found {
				return fmt.Errorf("output of the watch: got\n%s\nwant %q in this order", output, texts)
			}
			rest = after
		}
		return nil
	})
}

func isRunning(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }

func isReady(p *v1.Pod) bool {
	return isRunning(p) && recorder.PodCondition(&p.Status, v1.PodReady).Status == v1.ConditionTrue
}

func hasPhase(phase v1.PodPhase) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool { return p.Status.Phase == phase }
}

// exists is a condition of Await that every existing pod meets.
func exists(*v1.Pod) bool { return true }

// containerStatus returns the status of one container, or an empty one.
func containerStatus(p *v1.Pod, name string) v1.ContainerStatus {
	for _, status := range recorder.ContainerStatuses(&p.Status) {
		if status.Name == name {
			return status
		}
	}
	return v1.ContainerStatus{}
}
