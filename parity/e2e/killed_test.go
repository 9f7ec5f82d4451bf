package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/heraldnode/herald/heraldtest/fault"
	"github.com/heraldnode/herald/parity/internal/recorder"
)

// stage is a node with pods on which stories are played, and the agent that reports them.
type stage struct {
	t        *testing.T
	node     string
	admin    kubernetes.Interface
	seen     *recorder.Recorder
	faults   *fault.Injector
	settings agentConfig

	names    []string       // of all pods
	chapters map[string]int // where each pod is
	script   []string       // names in the order in which their pods go on

	agent     *exec.Cmd
	lines     io.WriteCloser
	lastWords bytes.Buffer // what the agent's last life knew in the end, if it ended in good order
	log       bytes.Buffer // what is wrong with the agent's lives
}

// setStage makes four pods for each plot. The seed says in which order their stories are told.
func setStage(t *testing.T, node string, seed uint64) *stage {
	t.Helper()
	if _, err := cluster.CreateNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	s := &stage{
		t: t, node: node, admin: admin(t), seen: recorder.Record(t, cluster, node, ""), faults: fault.NewInjector(), chapters: map[string]int{},
		settings: agentConfig{Node: node, State: filepath.Join(t.TempDir(), "state"), Manifests: t.TempDir()},
	}
	proxy, err := cluster.NewProxy(s.faults)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	if s.settings.Kubeconfig, err = proxy.NodeKubeconfig(node); err != nil {
		t.Fatal(err)
	}
	for _, kind := range slices.Sorted(maps.Keys(plots)) {
		for i := range 4 {
			s.cast(kind, i)
		}
	}
	for _, name := range s.names {
		s.script = append(s.script, slices.Repeat([]string{name}, lastChapter)...)
	}
	rand.New(rand.NewPCG(seed, seed)).Shuffle(len(s.script), func(i, j int) { s.script[i], s.script[j] = s.script[j], s.script[i] })
	t.Cleanup(s.clear)
	return s
}

// cast makes a pod, or the manifest of one.
func (s *stage) cast(kind string, i int) {
	s.t.Helper()
	name := fmt.Sprintf("%s-%d-%s", kind, i, s.node)
	s.names = append(s.names, name)
	if kind != "static" {
		createPod(s.t, s.admin, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PodSpec{
				NodeName: s.node, RestartPolicy: plots[kind].policy, Containers: []v1.Container{{Name: "main", Image: "web"}},
			},
		})
		return
	}
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: static-%d}\nspec:\n  containers:\n  - {name: main, image: web}\n", i)
	if err := os.WriteFile(filepath.Join(s.settings.Manifests, name+".yaml"), []byte(manifest), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// clear ends the agent and removes the mirrors, which nobody else does.
func (s *stage) clear() {
	if s.agent != nil {
		s.end(syscall.SIGKILL)
	}
	if strings.Contains(s.log.String(), "DATA RACE") {
		s.t.Error("the agent has a data race")
	}
	if s.t.Failed() {
		s.t.Logf("the agent said:\n%s", s.log.String())
	}
	clearNode(s.t, s.node)
}

// begin starts the agent, and tells it where each pod is: what the runtime on the node would tell.
func (s *stage) begin() {
	s.t.Helper()
	settings, err := json.Marshal(s.settings)
	if err != nil {
		s.t.Fatal(err)
	}
	s.agent = exec.CommandContext(s.t.Context(), os.Args[0])
	// The race detector would sleep for a second at the end of each life.
	s.agent.Env = append(os.Environ(), agentSettings+"="+string(settings), "GORACE=atexit_sleep_ms=0")
	s.lastWords.Reset()
	s.agent.Stdout, s.agent.Stderr = &s.lastWords, &s.log
	if s.lines, err = s.agent.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.agent.Start(); err != nil {
		s.t.Fatal(err)
	}
	for _, name := range s.names {
		s.say(name)
	}
}

// say tells the agent, if it lives, of one pod.
func (s *stage) say(name string) { _, _ = fmt.Fprintln(s.lines, name, s.chapters[name]) }

// end ends the agent with a signal, and returns its exit code.
func (s *stage) end(signal os.Signal) int {
	_ = s.agent.Process.Signal(signal)
	_ = s.agent.Wait() // being killed is an error
	code := s.agent.ProcessState.ExitCode()
	s.agent = nil
	return code
}

// goOn plays the next n steps of the script.
func (s *stage) goOn(n int) {
	s.t.Helper()
	for _, name := range s.script[:min(n, len(s.script))] {
		s.chapters[name]++
		if plotOf(name).leaves && s.chapters[name] == lastChapter/2 {
			if err := s.admin.CoreV1().Pods("default").Delete(s.t.Context(), name, metav1.DeleteOptions{}); err != nil {
				s.t.Fatal(err)
			}
		}
		s.say(name)
	}
	s.script = s.script[min(n, len(s.script)):]
}

// watchFor waits until the API server has shown n more changes of the node's pods, or a time has passed.
func (s *stage) watchFor(n int, atMost time.Duration) {
	enough := time.After(atMost)
	start, _ := s.seen.Events()
	for {
		now, next := s.seen.Events()
		if now >= start+n {
			return
		}
		select {
		case <-next:
		case <-enough:
			return
		}
	}
}

// finale plays the rest, and waits until the API server shows the end of every story. It returns what that is, without what
// is another one's in each run.
func (s *stage) finale() map[string]v1.PodStatus {
	s.t.Helper()
	s.goOn(len(s.script))
	ends := map[string]v1.PodStatus{}
	for _, name := range s.names {
		if plotOf(name).leaves {
			s.seen.AwaitDeleted(name)
			continue
		}
		last := s.seen.Await(name, "at the end of its story", func(p *v1.Pod) bool {
			number, _, _ := recorder.ParseNumberedMessage(p.Status.Message)
			return number == lastChapter
		})
		ends[strings.TrimSuffix(name, "-"+s.node)] = timeless(last)
	}
	return ends
}

// timeless is the pod's status without UIDs and the times of this run.
func timeless(p *v1.Pod) v1.PodStatus {
	_, of, _ := recorder.ParseNumberedMessage(p.Status.Message)
	status := p.Status.DeepCopy()
	status.StartTime = nil
	status.Message = recorder.NumberedMessage(lastChapter, "")
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		c.ContainerID = strings.Replace(c.ContainerID, string(of), "UID", 1)
		if end := c.State.Terminated; end != nil {
			end.ContainerID = strings.Replace(end.ContainerID, string(of), "UID", 1)
		}
	}
	return *status
}

// undisturbed is how the stories end when nothing happens to the agent.
func undisturbed(t *testing.T, node string, seed uint64) map[string]v1.PodStatus {
	t.Helper()
	s := setStage(t, node, seed)
	s.begin()
	return s.finale()
}

// loseServer has all writes of the agent fail until it has noted that on its disk, which takes a second or two.
func (s *stage) loseServer() (heal func()) {
	s.t.Helper()
	heal = s.faults.Add(fault.On("PATCH", "/pods/").Reply(503))
	before := s.kept()
	s.goOn(4)
	recorder.Eventually(s.t, "the agent's checkpoint", func() (string, bool) {
		return "as before", !bytes.Equal(before, s.kept())
	})
	return heal
}

// kept is the agent's checkpoint, or nil.
func (s *stage) kept() []byte {
	content, _ := os.ReadFile(filepath.Join(s.settings.State, "pod-statuses")) // it may not be there yet
	return content
}

func TestF15AHundredKillsAtRandomMomentsLeadToTheSameEnd(t *testing.T) { // I1..I9, I12, I13
	t.Parallel()
	const kills, seed = 100, 15
	want := undisturbed(t, "unkilled", seed)
	s := setStage(t, "killed", seed)
	random := rand.New(rand.NewPCG(seed, kills))
	for life := range kills {
		heal := func() {}
		s.begin()
		if life%20 == 10 {
			heal = s.loseServer()
		} else {
			s.goOn(1 + random.IntN(4))
			s.watchFor(random.IntN(4), 500*time.Millisecond)
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) // the moment is any
		}
		s.end(syscall.SIGKILL)
		heal()
	}
	s.begin()
	if diff := cmp.Diff(want, s.finale()); diff != "" {
		t.Fatalf("an undisturbed agent comes to another end (-undisturbed +killed):\n%s", diff)
	}
}

func TestF16AnAgentThatIsStoppedSaysWhatItKnowsFirst(t *testing.T) {
	t.Parallel()
	s := setStage(t, "stopped", 16)
	s.begin()
	for _, name := range s.names { // mirrors too
		s.seen.Await(name, "with a status", func(p *v1.Pod) bool { return p.Status.Message != "" })
	}
	for len(s.script) > 80 {
		first := s.script[slices.IndexFunc(s.script, func(name string) bool { return !plotOf(name).leaves })]
		before := s.chapters[first]
		s.goOn(80)
		s.seen.Await(first, "further", func(p *v1.Pod) bool { // most of the rest is still to be said
			number, _, _ := recorder.ParseNumberedMessage(p.Status.Message)
			return number > before
		})
		if code := s.end(syscall.SIGTERM); code != 0 {
			t.Fatalf("the agent ended with %d", code)
		}
		s.compareWithLastWords()
		s.begin()
	}
	s.finale()
}

// compareWithLastWords fails the test if the agent knew something that the API server does not.
func (s *stage) compareWithLastWords() {
	s.t.Helper()
	list, err := s.seen.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var known map[string]int
	if err := json.Unmarshal(s.lastWords.Bytes(), &known); err != nil {
		s.t.Fatalf("the agent's last words were %q: %v", s.lastWords.String(), err)
	}
	for _, p := range list.Items {
		if shown, _, _ := recorder.ParseNumberedMessage(p.Status.Message); shown < known[p.Name] {
			s.t.Errorf("pod %s shows %d when the agent has ended, which knew %d", p.Name, shown, known[p.Name])
		}
	}
}

func TestF18AnAgentStartsWithACheckpointThatIsBroken(t *testing.T) {
	t.Parallel()
	s := setStage(t, "corrupt", 18)
	for _, ruin := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:len(b)/2] },
		func([]byte) []byte { return nil },
		func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("Running"), []byte("Pending")) },
	} {
		s.begin()
		s.watchFor(1, time.Second)
		heal := s.loseServer()
		s.end(syscall.SIGKILL)
		heal()
		if err := os.WriteFile(filepath.Join(s.settings.State, "pod-statuses"), ruin(s.kept()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.begin()
	s.finale()
}
