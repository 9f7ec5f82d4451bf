package node_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestPod_RunAndDelete(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	watch := h.watchKubectl("web")
	h.createPod(h.mountWorkDir(newPod("web", newContainer("main", "work", workPath+"/main", "main", "--on-term", "200ms"))))
	p := h.Await("web", "ready", isReady)
	address, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || !address.Is4() || p.Status.HostIP != h.config.NodeIP.String() {
		t.Errorf("got podIP %q, hostIP %q; want an IPv4 address and %s", p.Status.PodIP, p.Status.HostIP, h.config.NodeIP)
	}
	if got := h.kubectl("get", "pod", "web", "--no-headers"); !strings.HasPrefix(got, "web   1/1   Running   0 ") {
		t.Errorf("kubectl get pod: got %q", got)
	}
	watch.awaitOutput(t, "Running")
	h.awaitWorkLog("main", "main started")
	h.kubectl("delete", "pod", "web")
	h.AwaitDeleted("web")
	h.awaitWorkLog("main", "main started", "main ended")
	watch.awaitOutput(t, "Running", "Terminating", "Completed")
}

func TestJob_TerminationMessage(t *testing.T) {
	t.Parallel()
	fallback := v1.TerminationMessageFallbackToLogsOnError
	cases := map[string]struct {
		args    []string
		policy  v1.TerminationMessagePolicy
		phase   v1.PodPhase
		reason  string
		code    int32
		message string
	}{
		"succeeded":            {[]string{"exit", "0", "--message", "well"}, "", v1.PodSucceeded, "Completed", 0, "well"},
		"failed":               {[]string{"exit", "3", "--message", "no luck"}, "", v1.PodFailed, "Error", 3, "no luck"},
		"failed-with-a-log":    {[]string{"exit", "4", "--print", "out of ink"}, fallback, v1.PodFailed, "Error", 4, "out of ink"},
		"succeeded-with-a-log": {[]string{"exit", "0", "--print", "never mind"}, fallback, v1.PodSucceeded, "Completed", 0, ""},
		"failed-with-both": {
			[]string{"exit", "5", "--print", "the log", "--message", "the file"}, fallback, v1.PodFailed, "Error", 5, "the file",
		},
	}
	h := newHarness(t, shared.node(t))
	for name, tc := range cases {
		c := newContainer("main", tc.args...)
		c.TerminationMessagePolicy = tc.policy
		h.createPod(newJob(name, c))
	}
	for name, tc := range cases {
		got := containerStatus(h.Await(name, string(tc.phase), hasPhase(tc.phase)), "main").State.Terminated
		if got == nil || got.Reason != tc.reason || got.ExitCode != tc.code || strings.TrimSpace(got.Message) != tc.message {
			t.Errorf("%s: got %+v, want %s, code %d, message %q", name, got, tc.reason, tc.code, tc.message)
		}
	}
}

func TestContainer_CrashLoopBackOff(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	h.createPod(h.mountWorkDir(newPod("crash", newContainer("main", "work", workPath+"/main", "main", "--exit", "7", "--after", "10ms"))))
	backingOff := func(restarts int32, message string) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool {
			c := containerStatus(p, "main")
			waiting := c.State.Waiting
			return c.RestartCount == restarts && waiting != nil && waiting.Reason == "CrashLoopBackOff" &&
				strings.HasPrefix(waiting.Message, message+" restarting failed container=main pod=crash_")
		}
	}
	first := h.Await("crash", "in its first back-off", backingOff(1, "back-off 10s"))
	second := h.Await("crash", "in its second back-off", backingOff(2, "back-off 20s"))
	before := containerStatus(first, "main").LastTerminationState.Terminated
	after := containerStatus(second, "main").LastTerminationState.Terminated
	if before == nil || after == nil || before.ExitCode != 7 || after.StartedAt.Sub(before.FinishedAt.Time).Seconds() < 9 {
		t.Errorf("got terminations %+v and %+v, want code 7 and 9 s between them", before, after)
	}
	if got := h.readWorkLog("main"); len(got) != 6 {
		t.Errorf("work log: got %q, want three starts and three exits", got)
	}
}

func TestJob_RestartOnFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	job := newPod("retrying", newContainer("main", "flip", workPath+"/flipped"))
	job.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	h.createPod(h.mountWorkDir(job))
	p := h.Await("retrying", "succeeded", hasPhase(v1.PodSucceeded))
	if c := containerStatus(p, "main"); c.RestartCount != 1 || c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
		t.Errorf("got %+v, want exit code 0 after one restart", c)
	}
}

func TestPod_ActiveDeadline(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	late := newJob("late", newContainer("main", "work", workPath+"/main", "main"))
	late.Spec.ActiveDeadlineSeconds = new(int64(2))
	h.createPod(h.mountWorkDir(late))
	p := h.Await("late", "failed", hasPhase(v1.PodFailed))
	if p.Status.Reason != "DeadlineExceeded" || p.Status.Message == "" {
		t.Errorf("got status %+v, want DeadlineExceeded with a message", p.Status)
	}
	h.awaitWorkLog("main", "main started", "main ended")
}

func TestPod_UnsupportedField(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	p := newPod("devices", newContainer("main", "pause"))
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
	h.createPod(p)
	h.awaitEvent("devices", "FailedCreatePodSandBox", "spec.resourceClaims")
	h.Await("devices", "pending", hasPhase(v1.PodPending))
}

func TestInitContainers_Order(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	const file = workPath + "/all"
	p := newPod("ordered", newContainer("main", "work", file, "main", "--on-term", "300ms"))
	p.Spec.InitContainers = []v1.Container{
		newContainer("first", "work", file, "first", "--after", "300ms"),
		newSidecar(newContainer("early", "work", file, "early", "--on-term", "100ms")),
		newContainer("second", "work", file, "second", "--after", "300ms"),
		newSidecar(newContainer("late", "work", file, "late", "--on-term", "100ms")),
	}
	h.createPod(h.mountWorkDir(p))
	h.Await("ordered", "ready", isReady)
	h.awaitWorkLine("all", "main started")
	h.deletePod("ordered")
	h.AwaitDeleted("ordered")
	got := h.readWorkLog("all")
	for _, pair := range [][2]string{
		{"first started", "first ended"}, {"first ended", "early started"}, {"early started", "second started"},
		{"second ended", "late started"}, {"late started", "main started"},
		{"main started", "main ended"}, {"main ended", "late ended"}, {"late ended", "early ended"},
	} {
		checkOrder(t, got, pair[0], pair[1])
	}
	if len(got) != 10 {
		t.Errorf("work log: got %q, want ten lines", got)
	}
}

func TestJob_WithSidecar(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	job := newJob("job", newContainer("main", "work", workPath+"/all", "main", "--after", "300ms", "--exit", "3"))
	job.Spec.InitContainers = []v1.Container{newSidecar(newContainer("side", "work", workPath+"/all", "side"))}
	h.createPod(h.mountWorkDir(job))
	p := h.Await("job", "failed", hasPhase(v1.PodFailed))
	if state := containerStatus(p, "side").State; state.Terminated == nil {
		t.Errorf("sidecar: got %+v, want terminated", state)
	}
	h.awaitWorkLog("all", "side started", "main started", "main ended", "side ended")
}

func TestInitContainers_Failure(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	p := newJob("broken", newContainer("main", "work", workPath+"/all", "main"))
	p.Spec.InitContainers = []v1.Container{
		newContainer("first", "work", workPath+"/all", "first", "--after", "10ms", "--exit", "9"),
		newContainer("second", "work", workPath+"/all", "second", "--after", "10ms"),
	}
	h.createPod(h.mountWorkDir(p))
	failed := h.Await("broken", "failed", hasPhase(v1.PodFailed))
	if state := containerStatus(failed, "first").State; state.Terminated == nil || state.Terminated.ExitCode != 9 {
		t.Errorf("first init container: got %+v, want exit code 9", state)
	}
	h.awaitWorkLog("all", "first started", "first ended")
}

// checkOrder fails the test unless both lines occur once, in this order.
func checkOrder(t *testing.T, lines []string, before, after string) {
	t.Helper()
	positions := map[string][]int{}
	for i, line := range lines {
		positions[line] = append(positions[line], i)
	}
	if len(positions[before]) != 1 || len(positions[after]) != 1 || positions[before][0] > positions[after][0] {
		t.Errorf("got lines %q, want %q once before %q", lines, before, after)
	}
}

// newHook returns a hook that appends a line to the work log "all".
func newHook(line string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: testpod("note", workPath+"/all", line)}}
}

func TestHooks_Order(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	c := newContainer("main", "work", workPath+"/all", "main")
	c.Lifecycle = &v1.Lifecycle{PostStart: newHook("postStart"), PreStop: newHook("preStop")}
	h.createPod(h.mountWorkDir(newPod("hooked", c)))
	h.Await("hooked", "ready", isReady)
	h.awaitWorkLine("all", "main started")
	h.deletePod("hooked")
	h.AwaitDeleted("hooked")
	got := h.readWorkLog("all")
	checkOrder(t, got, "main started", "preStop")
	checkOrder(t, got, "postStart", "preStop")
	checkOrder(t, got, "preStop", "main ended")
}

func TestHooks_PostStartFailure(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	c := newContainer("main", "work", workPath+"/all", "main")
	c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: testpod("exit", "1")}}}
	h.createPod(h.mountWorkDir(newPod("failed-hook", c)))
	h.Await("failed-hook", "waiting after the failed hook", func(p *v1.Pod) bool {
		waiting := containerStatus(p, "main").State.Waiting
		return waiting != nil && (waiting.Reason == "PostStartHookError" || waiting.Reason == "CrashLoopBackOff")
	})
	h.awaitEvent("failed-hook", "FailedPostStartHook", "")
}

func TestContainer_KilledAfterGracePeriod(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	p := newPod("ignores-term", newContainer("main", "work", workPath+"/all", "main", "--ignore-term"))
	p.Spec.TerminationGracePeriodSeconds = new(int64(2))
	h.createPod(h.mountWorkDir(p))
	h.Await("ignores-term", "ready", isReady)
	h.awaitWorkLog("all", "main started")
	h.deletePod("ignores-term")
	h.AwaitDeleted("ignores-term")
	h.awaitWorkLog("all", "main started")
	versions := h.Versions("ignores-term")
	got := containerStatus(versions[len(versions)-1], "main").State.Terminated
	if got == nil || got.ExitCode != 137 {
		t.Errorf("got %+v, want exit code 137", got)
	}
}

func TestPod_HostNetwork(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	p := newPod("host", newContainer("main", "pause"))
	p.Spec.HostNetwork = true
	h.createPod(p)
	got := h.Await("host", "ready", isReady)
	if got.Status.PodIP != h.config.NodeIP.String() || got.Status.HostIP != got.Status.PodIP {
		t.Errorf("got podIP %q, hostIP %q; want %s", got.Status.PodIP, got.Status.HostIP, h.config.NodeIP)
	}
	if devices := h.exec(got, "main", "cat", "/proc/net/dev"); !strings.Contains(devices, "herald") {
		t.Errorf("got devices %s, want the bridge of the machine", devices)
	}
}

func TestPod_HostnamesAndDNS(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	p := newPod("named", newContainer("main", "serve", "--port", "8081"))
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8081}}
	p.Spec.Hostname, p.Spec.Subdomain = "till", "shop"
	p.Spec.HostAliases = []v1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"oracle", "delphi"}}}
	p.Spec.DNSConfig = &v1.PodDNSConfig{Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}}}
	h.createPod(p)
	got := h.Await("named", "ready", isReady)
	services := h.Namespace + ".svc." + clusterDomain
	for file, want := range map[string][]string{
		"/etc/hosts":                {"10.1.2.3\toracle\tdelphi\n", got.Status.PodIP + "\ttill.shop." + services + "\ttill\n"},
		"/etc/resolv.conf":          {"nameserver " + clusterDNS.String() + "\n", services + " svc." + clusterDomain, "ndots:3"},
		"/proc/sys/kernel/hostname": {"till\n"},
	} {
		content := h.exec(got, "main", "cat", file)
		for _, line := range want {
			if !strings.Contains(content, line) {
				t.Errorf("%s: got\n%s\nwant %q in it", file, content, line)
			}
		}
	}
	h.awaitResponse("http://" + got.Status.PodIP + ":8081/healthz")
}

// startHangingRegistry starts a registry that accepts connections and never responds, and returns its address.
func startHangingRegistry(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestPull_DeleteWhileHanging(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	c := newContainer("main", "pause")
	c.Image, c.ImagePullPolicy = startHangingRegistry(t)+"/hangs:1", v1.PullAlways
	h.createPod(newPod("pulling", c))
	h.awaitEvent("pulling", "Pulling", "hangs:1")
	const limit = 20 * time.Second // the pull would hang for several minutes
	start := time.Now()
	h.deletePod("pulling")
	h.AwaitDeleted("pulling")
	if elapsed := time.Since(start); elapsed > limit {
		t.Errorf("the deletion took %v during a pull, want at most %v", elapsed, limit)
	}
}

func TestPull_MissingImages(t *testing.T) {
	t.Parallel()
	h := newHarness(t, shared.node(t))
	never, nowhere := newContainer("never", "pause"), newContainer("nowhere", "pause")
	never.Image, never.ImagePullPolicy = "herald.test/absent:1", v1.PullNever
	nowhere.Image = "127.0.0.1:1/absent:1"
	h.createPod(newPod("missing-images", never, nowhere, newContainer("fine", "pause")))
	h.Await("missing-images", "waiting for its images", func(p *v1.Pod) bool {
		a, b := containerStatus(p, "never").State.Waiting, containerStatus(p, "nowhere").State.Waiting
		return a != nil && a.Reason == "ErrImageNeverPull" && b != nil && b.Reason == "ImagePullBackOff" &&
			containerStatus(p, "fine").State.Running != nil
	})
	h.awaitEvent("missing-images", "Failed", "absent:1")
}
