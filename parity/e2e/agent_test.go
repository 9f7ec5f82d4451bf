package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/kubeapi"
	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/pod/mirror"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source"
	"github.com/heraldnode/herald/status"
)

// agentSettings makes an agent of this test binary: a process that can be killed. The variable has an agentConfig.
const agentSettings = "HERALD_E2E_AGENT"

type agentConfig struct {
	Kubeconfig, Node, State, Manifests string
}

// agent is sources, address book, mirrors and Status Manager in a process of their own. What happens to the pods comes from
// standard input, line by line: a pod's name and its chapter.
//
// One goroutine, tellAll, owns chapters and told, and calls the setters.
type agent struct {
	book     *pod.Manager
	mirrors  *mirror.Reconciler
	mux      *source.Mux
	status   *status.Manager
	chapters map[string]int
	told     map[string]int // the chapters that the Status Manager knows

	mu    sync.Mutex // guards ended
	ended map[podid.UID]bool
}

// PodCouldHaveRunningContainers is true until the pod's last chapter was heard of.
func (a *agent) PodCouldHaveRunningContainers(uid podid.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.ended[uid]
}

// PodResourcesAreReclaimed is true as soon as nothing runs.
func (a *agent) PodResourcesAreReclaimed(p *v1.Pod, _ *v1.PodStatus) bool {
	return !a.PodCouldHaveRunningContainers(podid.UID(p.UID))
}

// beAgent runs an agent until SIGTERM, and returns its exit code. In the end it prints what it knew.
func beAgent(settings string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := newAgent(settings)
	if err == nil {
		err = a.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

func newAgent(settings string) (*agent, error) {
	var c agentConfig
	if err := json.Unmarshal([]byte(settings), &c); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubeapi.New(config)
	if err != nil {
		return nil, err
	}
	a := &agent{book: pod.NewManager(), chapters: map[string]int{}, told: map[string]int{}, ended: map[podid.UID]bool{}}
	if err := a.findPods(c, client); err != nil {
		return nil, err
	}
	state, err := checkpoint.Open(c.State, checkpoint.Options{})
	if err != nil {
		return nil, err
	}
	a.status, err = status.New(status.Config{API: client, Pods: a.book, Deletion: a, State: state})
	return a, err
}

func (a *agent) findPods(c agentConfig, client *kubeapi.Client) error {
	files, err := source.NewFile(source.FileConfig{Path: c.Manifests, NodeName: c.Node})
	if err != nil {
		return err
	}
	api, err := source.NewAPI(source.APIConfig{ListerWatcher: client.PodsOnNode(c.Node), NodeName: c.Node})
	if err != nil {
		return err
	}
	if a.mux, err = source.NewMux(source.MuxConfig{Sources: []source.Source{files, api}}); err != nil {
		return err
	}
	a.mirrors, err = mirror.New(mirror.Config{
		NodeName: c.Node, Pods: a.book, API: client,
		Terminating:        func(podid.FullName) bool { return false },
		StaticSourcesReady: func() bool { return a.mux.Ready(podid.File) },
	})
	return err
}

// run stops in the order of the flow: when nobody has anything to say any more, the Status Manager passes it on.
func (a *agent) run(ctx context.Context) error {
	lines := make(chan string)
	go read(os.Stdin, lines) // ends with the process
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { _ = a.mux.Run(ctx) })
	all.Go(func() { _ = a.mirrors.Run(ctx) })
	all.Go(func() { a.tellAll(lines) })
	go func() {
		all.Wait()
		stop()
	}()
	return errors.Join(a.status.Run(reporting), json.NewEncoder(os.Stdout).Encode(a.told))
}

func read(from io.Reader, into chan<- string) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		into <- lines.Text()
	}
}

// tellAll goes on until there are no more updates.
func (a *agent) tellAll(lines <-chan string) {
	for {
		select {
		case update, more := <-a.mux.Updates():
			if !more {
				return
			}
			a.take(update)
		case line := <-lines:
			var name string
			var chapter int
			if _, err := fmt.Sscan(line, &name, &chapter); err != nil {
				panic(fmt.Sprintf("line %q: %v", line, err))
			}
			a.chapters[name] = chapter
			a.tell(name)
		}
	}
}

func (a *agent) take(update source.Update) {
	for _, p := range update.Pods {
		if update.Op == source.OpRemove {
			a.book.RemovePod(p)
		} else {
			a.book.UpdatePod(p)
			a.status.Reconcile(p)
			a.tell(p.Name)
		}
		a.mirrors.Enqueue(podid.FullNameOf(p))
	}
	update.Ack()
}

// tell says what there is to say of the pod, if both the pod and its chapter are known.
func (a *agent) tell(name string) {
	p, known := a.book.GetPodByName("default", name)
	chapter, heard := a.chapters[name]
	if !known || !heard {
		return
	}
	plot := plotOf(name)
	if plot.hasEnded(chapter) {
		a.mu.Lock()
		a.ended[podid.UID(p.UID)] = true
		a.mu.Unlock()
	}
	a.status.SetPodStatus(p, plot.status(p, chapter))
	a.told[name] = chapter
	if plot.hasEnded(chapter) {
		a.status.TerminatePod(p)
	}
}
