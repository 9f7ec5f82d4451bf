package explain_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
)

var questions = []explain.Question{wrong, notReady, notRunning, notDeleted, restarting}

// checkVerdict returns what no verdict may be.
func checkVerdict(f explain.Facts, q explain.Question, v explain.Verdict) string {
	texts := append([]string{v.Headline, v.Summary, v.Next.What, v.Next.Then, explain.Short(v, f.Now)}, v.Changes...)
	for _, because := range v.Chain {
		texts = append(texts, because.Text, because.Input)
	}
	for _, line := range v.Evidence {
		texts = append(texts, line.Text)
	}
	isInvisible := func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
	for _, text := range texts {
		if len(text) > 1200 || strings.ContainsFunc(text, isInvisible) {
			return "a text is too long or has control characters: " + text
		}
	}
	described := slices.ContainsFunc(explain.Codes(), func(c explain.Code) bool { return c.Name == v.Code })
	switch {
	case !described:
		return "the code is not described: " + v.Code
	case v.Headline == "" || v.Summary == "" || v.Next.What == "" || v.Next.By == "":
		return "a required text is empty"
	case len(v.Headline) > 400:
		return "the headline is too long"
	case v.OK && v.Final && explain.ClassOf(v.Code) != explain.Ended:
		return "final, though nothing is wrong"
	case q == notReady && v.OK != isConditionTrue(f.Pod, v1.PodReady):
		return "E1: OK differs from the Ready condition"
	case q == notRunning && v.OK != (f.Pod != nil && f.Pod.Status.Phase == v1.PodRunning):
		return "E1: OK differs from the phase"
	case v.Container != "" && !slices.Contains(containerNames(f.Pod), v.Container):
		return "E4: the container does not exist: " + v.Container
	}
	return ""
}

func isConditionTrue(pod *v1.Pod, conditionType v1.PodConditionType) bool {
	if pod == nil {
		return false
	}
	status := v1.ConditionUnknown
	for _, condition := range pod.Status.Conditions {
		if condition.Type == conditionType {
			status = condition.Status
		}
	}
	return status == v1.ConditionTrue
}

func containerNames(pod *v1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	return names
}

// FuzzPod decodes facts from JSON: whatever they say, there is an answer on one line (E2). Errors are strings in this form.
func FuzzPod(f *testing.F) {
	for _, test := range exampleCases() {
		encoded, err := json.Marshal(newFuzzFacts(test.facts))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var facts fuzzFacts
		if json.Unmarshal(encoded, &facts) != nil {
			t.Skip()
		}
		for _, q := range questions {
			v := explain.Pod(facts.facts(), q)
			if problem := checkVerdict(facts.facts(), q, v); problem != "" {
				t.Fatalf("%q: %s\n%s", q, problem, v.Text(now))
			}
			if text := v.Text(now); strings.Count(text, "\n") > 60 {
				t.Fatalf("got %d lines", strings.Count(text, "\n"))
			}
		}
	})
}

// fuzzFacts are facts with errors as strings.
type fuzzFacts struct {
	explain.Facts
	Trouble, Rejected, RuntimeDown, NetworkDown string
}

func newFuzzFacts(f explain.Facts) fuzzFacts {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	out := fuzzFacts{Facts: f, Trouble: text(f.Worker.Trouble), Rejected: text(f.Worker.Rejected)}
	out.RuntimeDown, out.NetworkDown = text(f.Runtime.Err), text(f.Runtime.Network)
	out.Worker.Trouble, out.Worker.Rejected, out.Runtime.Err, out.Runtime.Network = nil, nil, nil, nil
	return out
}

func (f fuzzFacts) facts() explain.Facts {
	parse := func(text string) error {
		if text == "" {
			return nil
		}
		return errors.New(text)
	}
	out := f.Facts
	out.Worker.Trouble, out.Worker.Rejected = parse(f.Trouble), parse(f.Rejected)
	out.Runtime.Err, out.Runtime.Network = parse(f.RuntimeDown), parse(f.NetworkDown)
	return out
}

// hostile are texts that others may write into a status.
var hostile = []string{
	"", "plain", "two\nlines", "\x1b[31mred\x1b[0m", "\u202egnp.exe", "\xff\xfe", strings.Repeat("x", 5000), "secret \"tls\" not found",
	"Node didn't have enough resource: pods, requested: 1, used: 2", "Pod was rejected: ",
}

var hostileText = rapid.SampledFrom(hostile)

// TestE4_HeadlineNamesExistingContainers draws facts that also mention containers that the pod does not have.
func TestE4_HeadlineNamesExistingContainers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		for _, q := range questions {
			v := explain.Pod(f, q)
			if problem := checkVerdict(f, q, v); problem != "" {
				t.Fatalf("%q: %s\n%s", q, problem, v.Text(now))
			}
			if strings.Contains(v.Headline, "ghost") {
				t.Fatalf("%q names a container that does not exist: %s", q, v.Headline)
			}
		}
	})
}

func drawState(t *rapid.T) v1.ContainerState {
	reasons := []string{
		"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError",
		"RestartingAllContainers", "Weird",
	}
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		return v1.ContainerState{}
	case 1:
		return running(time.Duration(rapid.IntRange(-5, 5000).Draw(t, "age")) * time.Second)
	case 2:
		state := exited(int32(rapid.IntRange(0, 2).Draw(t, "code")), rapid.SampledFrom([]string{"Error", "OOMKilled", "ContainerStatusUnknown"}).
			Draw(t, "reason"), time.Second)
		state.Terminated.Message = hostileText.Draw(t, "message")
		return state
	default:
		return waits(rapid.SampledFrom(reasons).Draw(t, "reason"), hostileText.Draw(t, "message"))
	}
}

func drawFacts(t *rapid.T) explain.Facts {
	f := newFacts("pod")
	f.Pod.Spec.RestartPolicy = rapid.SampledFrom([]v1.RestartPolicy{"Always", "OnFailure", "Never"}).Draw(t, "policy")
	f.Pod.Status.Phase = rapid.SampledFrom([]v1.PodPhase{"", "Pending", "Running", "Succeeded", "Failed", "Unknown"}).Draw(t, "phase")
	f.Pod.Status.Reason = rapid.SampledFrom([]string{"", "Evicted", "OutOfcpu", "Else"}).Draw(t, "reason")
	f.Pod.Status.Message = hostileText.Draw(t, "message")
	f.Pod.Spec.Containers[0].ReadinessProbe = rapid.SampledFrom([]*v1.Probe{nil, {}}).Draw(t, "readiness")
	f.Pod.Spec.Containers[0].StartupProbe = rapid.SampledFrom([]*v1.Probe{nil, {}}).Draw(t, "startup")
	if rapid.Bool().Draw(t, "init") {
		f.Pod.Spec.InitContainers = []v1.Container{{Name: "init", RestartPolicy: rapid.SampledFrom([]*v1.ContainerRestartPolicy{
			nil, new(v1.ContainerRestartPolicyAlways),
		}).Draw(t, "sidecar")}}
	}
	for _, name := range []string{"init", "web", "ghost"} {
		s := v1.ContainerStatus{Name: name, Ready: rapid.Bool().Draw(t, "ready"), State: drawState(t), LastTerminationState: drawState(t)}
		s.RestartCount = int32(rapid.IntRange(0, 3).Draw(t, "restarts"))
		if name == "init" {
			f.Pod.Status.InitContainerStatuses = append(f.Pod.Status.InitContainerStatuses, s)
		} else if rapid.Bool().Draw(t, "has a status") {
			f.Pod.Status.ContainerStatuses = append(f.Pod.Status.ContainerStatuses, s)
		}
	}
	for _, condition := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodReadyToStartContainers, v1.AllContainersRestarting} {
		if s := rapid.SampledFrom([]v1.ConditionStatus{"", "True", "False"}).Draw(t, "condition"); s != "" {
			with(condition, s, time.Minute)(&f)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
		f.Pod.DeletionTimestamp = new(metav1.NewTime(in(time.Minute)))
	}
	drawNodeFacts(t, &f)
	return f
}

// drawNodeFacts draws what the worker, the prober and the history know.
func drawNodeFacts(t *rapid.T, f *explain.Facts) {
	some := func(name string) bool { return rapid.IntRange(0, 4).Draw(t, name) == 0 }
	name := rapid.SampledFrom([]string{"web", "ghost"})
	f.Worker.Known = rapid.Bool().Draw(t, "known")
	f.Worker.Stage = plan.Stage(rapid.IntRange(0, 3).Draw(t, "stage"))
	f.Worker.VolumesPending, f.Worker.SandboxPending = some("volumes"), some("sandbox")
	if some("trouble") {
		f.Worker.Trouble = errors.New(hostileText.Draw(t, "trouble text"))
	}
	f.Worker.Starts = map[string]explain.Start{name.Draw(t, "start"): {Reason: "ErrImagePull", Message: hostileText.Draw(t, "start message")}}
	if some("stopping") {
		f.Worker.Stopping = []explain.Stopping{{Container: name.Draw(t, "stopping name"), Reason: plan.StopLivenessProbe}}
	}
	f.Probes = []explain.Probe{{
		Container: name.Draw(t, "probe"), Kind: rapid.SampledFrom([]explain.ProbeKind{explain.Startup, explain.Readiness}).Draw(t, "kind"),
		Errors: rapid.IntRange(0, 1).Draw(t, "errors"), Last: explain.Answer{Message: hostileText.Draw(t, "answer")},
	}}
	f.Recent = map[string]explain.Recent{name.Draw(t, "recent"): {Restarts: rapid.IntRange(0, 3).Draw(t, "recent restarts"), StoppedBy: "Else"}}
	f.LastLines = map[string][]string{name.Draw(t, "lines"): {hostileText.Draw(t, "line")}}
	if some("runtime") {
		f.Runtime = explain.Runtime{Err: errors.New("down"), Stale: true}
	}
	if some("source") {
		f.Source = explain.Source{Name: podid.File, Problem: hostileText.Draw(t, "problem")}
	}
	f.Sync.State = rapid.SampledFrom([]explain.SyncState{"", explain.SyncWaiting, explain.SyncSynced, explain.SyncGone}).Draw(t, "sync")
}

// TestPod_RulesExist verifies that all rules that verdicts and codes cite are documented.
func TestPod_RulesExist(t *testing.T) {
	documented := readRules(t)
	for _, code := range explain.Codes() {
		if code.Rule != "" && !strings.Contains(documented, "**"+code.Rule+"**") {
			t.Errorf("%s cites %s, which is not documented", code.Name, code.Rule)
		}
	}
	for _, test := range exampleCases() {
		for _, because := range explain.Pod(test.facts, test.question).Chain {
			if because.Rule != "" && !strings.Contains(documented, "**"+because.Rule+"**") {
				t.Errorf("%s cites %s, which is not documented", test.name, because.Rule)
			}
			if because.Text == "" {
				t.Errorf("%s has a reason without a text", test.name)
			}
		}
	}
}

func readRules(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range []string{"../docs/behaviour.md", "../docs/node-rules.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
