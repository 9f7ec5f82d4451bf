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
	"github.com/heraldnode/herald/heraldtest/engine"
	"github.com/heraldnode/herald/plan"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// command is what may stand behind ">": its words are those of the line, without the first.
type command func(s *story, words []string) error

var commands = map[string]command{
	"alone":      func(s *story, _ []string) error { s.alone, s.watch.fromAgent = true, "node"; return nil },
	"roughly":    func(s *story, _ []string) error { s.watch.timeless = true; return nil },
	"exactly":    func(s *story, _ []string) error { s.watch.timeless = false; return nil },
	"start":      func(s *story, _ []string) error { return s.startAgent() },
	"stop":       func(s *story, _ []string) error { return s.stopAgent() },
	"kill":       func(s *story, _ []string) error { return s.killAgent() },
	"restart":    func(s *story, _ []string) error { return errors.Join(s.stopAgent(), s.startAgent()) },
	"reboot":     func(s *story, _ []string) error { s.engine.Reboot(); return nil },
	"down":       func(s *story, _ []string) error { s.server.SetDown(true); return nil },
	"up":         func(s *story, _ []string) error { s.server.SetDown(false); return nil },
	"bind":       bind,
	"manifest":   putManifest,
	"unmanifest": func(s *story, words []string) error { s.files.put(words[0], nil); return nil },
	"delete":     deletePod,
	"exit":       exit,
	"script":     setScript,
	"wait":       wait,
	"reject":     reject,
	"admit":      admit,
	"evict":      evict,
	"turn":       turn,
	"resize":     resize,
	"leftover":   leftover,
	"hang":       hang,
	"heal":       func(s *story, _ []string) error { s.heal(); return nil },
	"health":     health,
}

// settings are the commands that only say how something will be: nothing happens yet.
var settings = []string{"alone", "roughly", "exactly", "script", "reject", "admit"}

// play does what the command says and tells what happened until then, and at once after it.
func (s *story) play(line string) []string {
	s.Helper()
	words := strings.Fields(line)
	do, known := commands[words[0]]
	if !known {
		s.Fatalf("the story says %q, and nobody knows how; there are: %v", line, slices.Sorted(maps.Keys(commands)))
	}
	if err := do(s, words[1:]); err != nil {
		s.Errorf("%s: %v", line, err)
	}
	// How soon something is noticed is chance in a story that is told roughly, so it is told with the wait that follows.
	chance := s.watch.timeless && words[0] == "up"
	if !slices.Contains(settings, words[0]) && !chance {
		s.pass(busy)
	}
	return s.watch.told()
}

// fullName is a pod of the story by its short name.
func fullName(name string) podid.FullName { return podid.FullName{Namespace: "shop", Name: name} }

func (s *story) decode(file string) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(s.manifests[file]), p); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p.Namespace, p.Spec.NodeName = "shop", nodeName
	s.bound++
	p.UID = types.UID(fmt.Sprintf("%s-%d", p.Name, s.bound))
	return p, nil
}

// bind has the scheduler put a pod on this node.
func bind(s *story, words []string) error {
	p, err := s.decode(words[0])
	if err != nil {
		return err
	}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}
	s.server.AddPod(p)
	return nil
}

// putManifest puts a manifest into the folder, over that of the same pod.
func putManifest(s *story, words []string) error {
	text := strings.Replace(s.manifests[words[0]], "metadata:\n", "metadata:\n  namespace: shop\n", 1)
	pods, err := manifest.Decode([]byte(text), manifest.Origin{Source: podid.File, Location: words[0], NodeName: nodeName})
	if err != nil {
		return err
	}
	s.files.put(strings.TrimSuffix(pods[0].Name, "-"+nodeName), pods[0])
	return nil
}

// deletePod is kubectl delete; 0s is --force.
func deletePod(s *story, words []string) error {
	grace, err := time.ParseDuration(words[1])
	if err == nil && !s.server.DeletePod(fullName(words[0]), int64(grace.Seconds())) {
		err = errors.New("there is no such pod")
	}
	return err
}

func (s *story) uidOf(name string) podid.UID {
	pods, err := s.engine.ListPods(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	var newest podid.UID
	for _, p := range pods {
		if p.Name == fullName(name) && p.Running() {
			newest = p.UID
		}
	}
	return newest
}

// exit ends a container's process: POD CONTAINER CODE.
func exit(s *story, words []string) error {
	code, err := strconv.Atoi(words[2])
	if err == nil && !s.engine.Exit(s.uidOf(words[0]), words[1], code) {
		err = errors.New("it does not run")
	}
	return err
}

// setScript says what containers of that name do from now on.
func setScript(s *story, words []string) error {
	var script engine.Script
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "ignores-term":
			script.Ending = engine.Forever
		case "fails-pull":
			script.PullError = pullError{}
		case "message":
			script.Message = strings.Join(words[i+1:], " ")
			i = len(words)
		default:
			if err := setScriptValue(&script, words[i], words[i+1]); err != nil {
				return err
			}
			i++
		}
	}
	s.engine.Script(words[0], script)
	return nil
}

func setScriptValue(script *engine.Script, what, value string) error {
	if what == "exits" {
		code, err := strconv.Atoi(value)
		script.ExitCode = code
		return err
	}
	times := map[string]*time.Duration{
		"pull": &script.Pull, "runs": &script.Runs, "ends-in": &script.Ending, "prestop": &script.PreStop,
	}
	if times[what] == nil {
		return fmt.Errorf("no container can %s", what)
	}
	var err error
	*times[what], err = time.ParseDuration(value)
	return err
}

type pullError struct{}

func (pullError) Error() string         { return "the registry does not know this image" }
func (pullError) WaitingReason() string { return "ErrImagePull" }

func wait(s *story, words []string) error {
	d, err := time.ParseDuration(words[0])
	s.pass(d - time.Since(s.watch.began)%time.Second)
	return err
}

func reject(s *story, words []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected[words[0]] = words[1]
	return nil
}

func admit(s *story, words []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rejected, words[0])
	return nil
}

// evict sends a pod away for want of something: POD RESOURCE.
func evict(s *story, words []string) error {
	p, found := s.node.Pods.GetPodByFullName(fullName(words[0]))
	if !found {
		return errors.New("there is no such pod")
	}
	kill := plan.KillOptions{Evict: true, StatusFunc: func(status *v1.PodStatus) {
		status.Phase, status.Reason, status.Message = v1.PodFailed, "Evicted", "the node was low on "+words[1]
	}}
	killed := make(chan error, 1)
	go func() { killed <- s.node.Workers.KillPod(context.Background(), p, kill) }()
	for len(killed) == 0 {
		s.pass(moment)
	}
	return <-killed
}

// turn is somebody else who sets a condition of a pod: POD CONDITION STATUS.
func turn(s *story, words []string) error {
	kind, to := v1.PodConditionType(words[1]), v1.ConditionStatus(words[2])
	s.server.UpdatePod(fullName(words[0]), func(p *v1.Pod) {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind })
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: to})
	})
	return nil
}

// resize is what somebody asks of a pod that runs: so much CPU for its first container.
func resize(s *story, words []string) error {
	cpu, err := resource.ParseQuantity(words[1])
	if err != nil {
		return err
	}
	s.server.UpdatePod(fullName(words[0]), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: cpu}
	})
	return nil
}

// leftover runs a pod that no source knows.
func leftover(s *story, words []string) error {
	p, err := s.decode(words[0])
	if err != nil {
		return err
	}
	sandbox, err := s.engine.StartSandbox(context.Background(), p, 0)
	if err != nil {
		return err
	}
	start := plan.Start{Container: &p.Spec.Containers[0], Kind: derive.RegularContainer}
	return s.engine.StartContainer(context.Background(), p, sandbox, start)
}

// hang lets no call of the runtime end, until it is healed.
func hang(s *story, _ []string) error {
	s.heal = s.engine.Break(func(engine.Call) bool { return true }, engine.Fault{Delay: engine.Forever})
	return nil
}

func health(s *story, _ []string) error {
	word := "healthy"
	if err := s.node.Healthy(); err != nil {
		word = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	s.watch.tell("agent", "", word)
	return nil
}
