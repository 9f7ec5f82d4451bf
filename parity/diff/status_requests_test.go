package diff_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/podid"
)

// memory is a cluster in memory with one namespace, which sees who writes without need.
type memory struct {
	*heraldtest.APIServer
	namespace string
	// idle counts the patches that left an object as it was.
	idle atomic.Int64
}

func (m *memory) full(name string) podid.FullName {
	return podid.FullName{Namespace: m.namespace, Name: name}
}

func (m *memory) add(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Namespace = m.namespace
	return m.AddPod(p)
}

func (m *memory) pod(name string) *v1.Pod                  { return m.Pod(m.full(name)) }
func (m *memory) update(name string, edit func(p *v1.Pod)) { m.UpdatePod(m.full(name), edit) }
func (m *memory) remove(name string, grace int64)          { m.DeletePod(m.full(name), grace) }

func (m *memory) config() *rest.Config {
	config := m.Config()
	config.Transport = auditor{m, config.Transport}
	return config
}

// auditor looks at the object before and after a patch.
type auditor struct {
	cluster *memory
	next    http.RoundTripper
}

func (a auditor) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch {
		return a.next.RoundTrip(r)
	}
	name := strings.Split(r.URL.Path, "/")[6]
	before := a.version(name)
	response, err := a.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK && a.version(name) == before {
		a.cluster.idle.Add(1)
	}
	return response, err
}

func (a auditor) version(name string) string {
	if p := a.cluster.pod(name); p != nil {
		return p.ResourceVersion
	}
	return ""
}

// tally is what a node asked of the API server about single pods.
type tally struct {
	gets, patches, deletes int
}

func (n *twin) tally() tally {
	asked := n.faults.Requests()
	return tally{
		gets: len(asked.Of("get", "/pods/")), patches: len(asked.Of("PATCH", "/pods/")), deletes: len(asked.Of("DELETE", "/pods/")),
	}
}

// compareRequests says what our node asked too often since the last time: it never reads what the watch tells, changes
// something with each write, and writes no more often than the kubelet.
func (w *twins) compareRequests() string {
	kubelet, herald := w.nodes[0].tally(), w.nodes[1].tally()
	asked := w.nodes[1].faults.Requests().Of("*", "/pods/")
	idle := w.nodes[1].cluster.(*memory).idle.Swap(0)
	for _, n := range w.nodes {
		n.faults.Forget()
	}
	extra := herald.gets + max(0, herald.patches-kubelet.patches) + max(0, herald.deletes-kubelet.deletes)
	if idle > 0 || extra > w.blind {
		return fmt.Sprintf("the kubelet asked %+v; Herald asked %+v, with %d patches that changed nothing:\n%+v", kubelet, herald, idle, asked)
	}
	w.blind = 0
	return ""
}
