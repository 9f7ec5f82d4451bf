package node_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func noteHook(line string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"/testpod", "note", diaryPath + "/all", line}}}
}

func TestHooksRunAfterTheStartAndBeforeTheEnd(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	c := runs("main", "work", diaryPath+"/all", "main")
	c.Lifecycle = &v1.Lifecycle{PostStart: noteHook("hooked on"), PreStop: noteHook("hooked off")}
	tr.bind(tr.keepsDiary(newPod("hooked", c)))
	tr.Await("hooked", "ready", isReady)
	tr.awaitLine("all", "main started")
	tr.delete("hooked")
	tr.AwaitDeleted("hooked")
	got := tr.written("all")
	mustBeInOrder(t, got, "main started", "hooked off")
	mustBeInOrder(t, got, "hooked on", "hooked off")
	mustBeInOrder(t, got, "hooked off", "main ended")
}

func TestAPostStartHookThatFailsEndsItsContainer(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	c := runs("main", "work", diaryPath+"/all", "main")
	fails := &v1.ExecAction{Command: []string{"/testpod", "exit", "1"}}
	c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: fails}}
	tr.bind(tr.keepsDiary(newPod("unhooked", c)))
	tr.Await("unhooked", "waiting after its hook", func(p *v1.Pod) bool {
		waiting := containerOf(p, "main").State.Waiting
		return waiting != nil && (waiting.Reason == "PostStartHookError" || waiting.Reason == "CrashLoopBackOff")
	})
	tr.awaitEvent("unhooked", "FailedPostStartHook", "")
}

func TestAContainerThatIgnoresItsEndIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := newPod("stubborn", runs("main", "work", diaryPath+"/all", "main", "--ignore-term"))
	p.Spec.TerminationGracePeriodSeconds = new(int64(2))
	tr.bind(tr.keepsDiary(p))
	tr.Await("stubborn", "ready", isReady)
	tr.mustHaveWritten("all", "main started")
	tr.delete("stubborn")
	tr.AwaitDeleted("stubborn")
	tr.mustHaveWritten("all", "main started")
	versions := tr.Versions("stubborn")
	last := containerOf(versions[len(versions)-1], "main").State.Terminated
	if last == nil || last.ExitCode != 137 {
		t.Errorf("it ended with %+v", last)
	}
}

func TestAPodInTheMachinesNetwork(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := newPod("host", runs("main", "pause"))
	p.Spec.HostNetwork = true
	tr.bind(p)
	got := tr.Await("host", "ready", isReady)
	if got.Status.PodIP != tr.settings.Address.String() || got.Status.HostIP != got.Status.PodIP {
		t.Errorf("its addresses are %q and %q", got.Status.PodIP, got.Status.HostIP)
	}
	if inside := tr.exec(got, "main", "cat", "/proc/net/dev"); !strings.Contains(inside, "herald") {
		t.Errorf("it does not see the machine's bridge in %s", inside)
	}
}

func TestNamesInsideAPod(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	p := newPod("named", runs("main", "serve", "--port", "8081"))
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8081}}
	p.Spec.Hostname, p.Spec.Subdomain = "till", "shop"
	p.Spec.HostAliases = []v1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"oracle", "delphi"}}}
	p.Spec.DNSConfig = &v1.PodDNSConfig{Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}}}
	tr.bind(p)
	got := tr.Await("named", "ready", isReady)
	services := tr.Namespace + ".svc." + clusterDomain
	for file, want := range map[string][]string{
		"/etc/hosts":                {"10.1.2.3\toracle\tdelphi\n", got.Status.PodIP + "\ttill.shop." + services + "\ttill\n"},
		"/etc/resolv.conf":          {"nameserver " + clusterDNS.String() + "\n", services + " svc." + clusterDomain, "ndots:3"},
		"/proc/sys/kernel/hostname": {"till\n"},
	} {
		content := tr.exec(got, "main", "cat", file)
		for _, line := range want {
			if !strings.Contains(content, line) {
				t.Errorf("no %q in %s:\n%s", line, file, content)
			}
		}
	}
	tr.mustAnswer("http://" + got.Status.PodIP + ":8081/healthz")
}
