package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// command is a command of a scenario with its arguments.
type command func(h *harness, args []string) error

var commands = map[string]command{
	"standalone": func(h *harness, _ []string) error { h.standalone, h.transcript.statusOrigin = true, "node"; return nil },
	"timestamps": func(h *harness, args []string) error { h.transcript.noTimestamps = args[0] == "off"; return nil },
	"start":      func(h *harness, _ []string) error { return h.startAgent() },
	"stop":       func(h *harness, _ []string) error { return h.stopAgent() },
	"kill":       func(h *harness, _ []string) error { return h.killAgent() },
	"restart":    func(h *harness, _ []string) error { return errors.Join(h.stopAgent(), h.startAgent()) },
	"reboot":     func(h *harness, _ []string) error { h.runtime.Reboot(); return nil },
	"api-down":   func(h *harness, _ []string) error { h.server.SetDown(true); return nil },
	"api-up":     func(h *harness, _ []string) error { h.server.SetDown(false); return nil },
	"reject":     func(h *harness, args []string) error { h.admission.setReason(args[0], args[1]); return nil },
	"admit":      func(h *harness, args []string) error { h.admission.setReason(args[0], ""); return nil },
	"heal":       func(h *harness, _ []string) error { h.heal(); return nil },

	"bind":            bindPod,
	"delete":          deletePod,
	"put-manifest":    putManifest,
	"remove-manifest": removeManifest,
	"run-orphan":      runOrphan,
	"script":          setScript,
	"exit":            exitContainer,
	"evict":           evictPod,
	"set-condition":   setCondition,
	"resize":          resizePod,
	"hang":            hangRuntime,
	"health":          reportHealth,
	"wait":            wait,
}

// settings are the commands that have no effect by themselves.
var settings = []string{"standalone", "timestamps", "script", "reject", "admit"}

// execute runs a command and returns what happened since the previous one.
func (h *harness) execute(line string) []string {
	h.Helper()
	words := strings.Fields(line)
	run, found := commands[words[0]]
	if !found {
		h.Fatalf("unknown command %q, want one of %v", line, slices.Sorted(maps.Keys(commands)))
	}
	if err := run(h, words[1:]); err != nil {
		h.Errorf("%s: %v", line, err)
	}
	// Without timestamps the time until the agent notices the API server varies, so the next wait records it.
	varies := h.transcript.noTimestamps && words[0] == "api-up"
	if !slices.Contains(settings, words[0]) && !varies {
		h.pass(settleTime)
	}
	return h.transcript.take()
}

// decodePod returns the pod of a manifest with a new UID.
func (h *harness) decodePod(file string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(h.manifests[file]), pod); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	pod.Namespace, pod.Spec.NodeName = namespace, nodeName
	h.generation++
	pod.UID = types.UID(fmt.Sprintf("%s-%d", pod.Name, h.generation))
	return pod, nil
}

// bindPod creates a pod that is scheduled to the node: FILE.
func bindPod(h *harness, args []string) error {
	pod, err := h.decodePod(args[0])
	if err != nil {
		return err
	}
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}
	h.server.AddPod(pod)
	return nil
}

// deletePod deletes a pod as kubectl does: POD GRACE-PERIOD. A grace period of 0s is --force.
func deletePod(h *harness, args []string) error {
	gracePeriod, err := time.ParseDuration(args[1])
	if err == nil && !h.server.DeletePod(fullName(args[0]), int64(gracePeriod.Seconds())) {
		err = errors.New("pod not found")
	}
	return err
}

// putManifest adds a manifest or replaces the manifest of the same pod: FILE.
func putManifest(h *harness, args []string) error {
	text := strings.Replace(h.manifests[args[0]], "metadata:\n", "metadata:\n  namespace: "+namespace+"\n", 1)
	pods, err := manifest.Decode([]byte(text), manifest.Origin{Source: podid.File, Location: args[0], NodeName: nodeName})
	if err != nil {
		return err
	}
	h.source.set(strings.TrimSuffix(pods[0].Name, "-"+nodeName), pods[0])
	return nil
}

// removeManifest removes the manifest of a pod: NAME.
func removeManifest(h *harness, args []string) error {
	h.source.set(args[0], nil)
	return nil
}

// runOrphan runs a pod that no source knows: FILE.
func runOrphan(h *harness, args []string) error {
	pod, err := h.decodePod(args[0])
	if err != nil {
		return err
	}
	sandboxID, err := h.runtime.StartSandbox(context.Background(), pod, 0)
	if err != nil {
		return err
	}
	start := plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer}
	return h.runtime.StartContainer(context.Background(), pod, sandboxID, start)
}

// setScript sets the behavior of containers: NAME [OPTION [VALUE]]...
func setScript(h *harness, args []string) error {
	var script fakeruntime.Script
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "ignores-term":
			script.StopDuration = fakeruntime.Forever
		case "fails-pull":
			script.PullErr = pullError{}
		case "message":
			script.TerminationMessage = strings.Join(args[i+1:], " ")
			i = len(args)
		default:
			if err := setScriptOption(&script, args[i], args[i+1]); err != nil {
				return err
			}
			i++
		}
	}
	h.runtime.SetScript(args[0], script)
	return nil
}

func setScriptOption(script *fakeruntime.Script, option, value string) error {
	if option == "exits" {
		code, err := strconv.Atoi(value)
		script.ExitCode = code
		return err
	}
	durations := map[string]*time.Duration{
		"pull": &script.PullDuration, "runs": &script.RunDuration, "ends-in": &script.StopDuration, "prestop": &script.PreStopDuration,
	}
	if durations[option] == nil {
		return fmt.Errorf("unknown option %q", option)
	}
	var err error
	*durations[option], err = time.ParseDuration(value)
	return err
}

type pullError struct{}

func (pullError) Error() string         { return "image not found in registry" }
func (pullError) WaitingReason() string { return "ErrImagePull" }

// exitContainer ends the process of a container: POD CONTAINER CODE.
func exitContainer(h *harness, args []string) error {
	code, err := strconv.Atoi(args[2])
	if err == nil && !h.runtime.ExitContainer(h.runningUID(args[0]), args[1], code) {
		err = errors.New("container is not running")
	}
	return err
}

// evictPod evicts a pod: POD RESOURCE.
func evictPod(h *harness, args []string) error {
	pod, found := h.node.Pods.GetPodByFullName(fullName(args[0]))
	if !found {
		return errors.New("pod not found")
	}
	options := plan.KillOptions{Evict: true, StatusFunc: func(status *v1.PodStatus) {
		status.Phase, status.Reason, status.Message = v1.PodFailed, "Evicted", "the node was low on "+args[1]
	}}
	killed := make(chan error, 1)
	go func() { killed <- h.node.Workers.KillPod(context.Background(), pod, options) }()
	for len(killed) == 0 {
		h.pass(readLatency)
	}
	return <-killed
}

// setCondition sets a condition of a pod as another component: POD CONDITION STATUS.
func setCondition(h *harness, args []string) error {
	conditionType, status := v1.PodConditionType(args[1]), v1.ConditionStatus(args[2])
	h.server.UpdatePod(fullName(args[0]), func(pod *v1.Pod) {
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(condition v1.PodCondition) bool {
			return condition.Type == conditionType
		})
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: conditionType, Status: status})
	})
	return nil
}

// resizePod changes the CPU request of a pod's first container: POD CPU.
func resizePod(h *harness, args []string) error {
	cpu, err := resource.ParseQuantity(args[1])
	if err != nil {
		return err
	}
	h.server.UpdatePod(fullName(args[0]), func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: cpu}
	})
	return nil
}

// hangRuntime makes all runtime calls hang until the command heal.
func hangRuntime(h *harness, _ []string) error {
	h.heal = h.runtime.Inject(func(fakeruntime.Call) bool { return true }, fakeruntime.Fault{Delay: fakeruntime.Forever})
	return nil
}

// reportHealth records the health of the agent.
func reportHealth(h *harness, _ []string) error {
	text := "healthy"
	if err := h.node.Healthy(); err != nil {
		text = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	h.transcript.add("agent", "", text)
	return nil
}

// wait lets time pass: DURATION. It ends at a full second.
func wait(h *harness, args []string) error {
	d, err := time.ParseDuration(args[0])
	h.pass(d - time.Since(h.transcript.start)%time.Second)
	return err
}
