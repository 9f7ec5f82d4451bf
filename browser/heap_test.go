package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
)

const (
	hour        = 3600 // seconds
	loadSeconds = 5    // loads are sent this often
	shortLived  = 10   // pods that come in a second and go in the next
)

// hourAgent sends what happens in an hour on a node with many pods, as fast as the page reads it: changes, pods that come and go, loads,
// alerts. It waits after the first tenth.
type hourAgent struct{ goOn chan struct{} }

func (a *hourAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/watch") {
		_, _ = w.Write([]byte(`{"items": []}`))
		return
	}
	s := &hourStream{encoder: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
	for i := range manyPods {
		s.send("pods", "ADDED", manyPod(i, 0))
	}
	s.id = 1
	s.send("pods", "SYNCED", nil)
	for second := 1; second <= hour && r.Context().Err() == nil; second++ {
		s.second(second)
		if second == hour/10 {
			s.send("pods", "MODIFIED", manyPod(0, second))
			_ = s.flush()
			s.wait(r, a.goOn)
		}
	}
	s.send("pods", "MODIFIED", manyPod(0, hour))
	s.wait(r, nil)
}

type hourStream struct {
	encoder *json.Encoder
	flush   func() error
	id      int
}

func (s *hourStream) send(topic, kind string, object any) {
	if s.id > 0 {
		s.id++
	}
	_ = s.encoder.Encode(map[string]any{"id": s.id, "topic": topic, "type": kind, "object": object})
}

// wait sends a sign of life now and then until the channel is closed.
func (s *hourStream) wait(r *http.Request, end <-chan struct{}) {
	for {
		s.send("pods", "BOOKMARK", nil)
		_ = s.flush()
		select {
		case <-end:
			return
		case <-r.Context().Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// second sends what happens in a second: changes, pods that go and others that come, an alert, and loads.
func (s *hourStream) second(n int) {
	for i := range changes {
		s.send("pods", "MODIFIED", manyPod(1+(n*changes+i)%(manyPods/2), n))
	}
	for i := range shortLived {
		if n > 1 {
			s.send("pods", "DELETED", manyPod(manyPods+(n-1)*shortLived+i, 0))
		}
		s.send("pods", "ADDED", manyPod(manyPods+n*shortLived+i, 0))
	}
	if n > 1 {
		s.send("alerts", "DELETED", hourAlert(n-1))
	}
	s.send("alerts", "ADDED", hourAlert(n))
	if n%loadSeconds == 0 {
		s.send("load", "MODIFIED", hourLoads(n))
	}
	_ = s.flush()
}

func hourAlert(n int) map[string]any {
	return map[string]any{
		"labels": map[string]any{"alertname": "Changing", "severity": "warning", "namespace": "many", "pod": fmt.Sprintf("pod-%03d", manyPods+n*shortLived)},
		"state":  "firing", "startsAt": time.Now(),
	}
}

func hourLoads(n int) map[string]any {
	mean := func(value float64) map[string]any { return map[string]any{"last1m": map[string]any{"mean": value}} }
	var pods []any
	for i := range manyPods + shortLived {
		if i >= manyPods {
			i += n * shortLived // those that came last
		}
		pods = append(pods, map[string]any{
			"metadata": map[string]any{"namespace": "many", "name": fmt.Sprintf("pod-%03d", i)},
			"load":     map[string]any{"cpu": map[string]any{"cores": mean(float64((n+i)%100) / 100)}, "memory": map[string]any{"workingSetBytes": mean(float64(n+i) * 1e5)}},
		})
	}
	return map[string]any{"node": map[string]any{"saturation": float64(n%100) / 100, "level": "normal"}, "pods": pods}
}

// used returns what is left on the heap after garbage collections, and how many nodes the document has.
func used(b *tab) (heap, nodes float64) {
	b.t.Helper()
	for range 3 { // what a finalizer frees is collected by the next one
		b.run(heapprofiler.CollectGarbage())
	}
	values := metrics(b)
	return values["JSHeapUsedSize"], values["Nodes"]
}

// What the page keeps does not grow with what happened: after an hour it is what it was after six minutes.
func TestHeapIsFlat(t *testing.T) {
	agent := &hourAgent{goOn: make(chan struct{})}
	b := newTab(t)
	b.run(performance.Enable(), heapprofiler.Enable())
	b.open(serveAgent(t, agent))
	shows := func(second int) {
		b.wait(fmt.Sprintf(`document.querySelector('[data-key="many/pod-000"] [data-head=Restarts]')?.textContent === '%d'`, second))
	}
	shows(hour / 10)
	heap, nodes := used(b)
	close(agent.goOn)
	shows(hour)
	heapAfter, nodesAfter := used(b)
	const mib = 1 << 20
	t.Logf("after 6 minutes %.1f MiB and %.0f nodes, after an hour %.1f MiB and %.0f nodes", heap/mib, nodes, heapAfter/mib, nodesAfter)
	if heapAfter > heap*1.25 {
		t.Errorf("the heap grew from %.1f to %.1f MiB", heap/mib, heapAfter/mib)
	}
	if nodesAfter > nodes*1.25 {
		t.Errorf("the document grew from %.0f to %.0f nodes", nodes, nodesAfter)
	}
}
