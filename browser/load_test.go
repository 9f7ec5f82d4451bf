package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/heraldnode/herald/server/page"
)

const (
	manyPods = 500
	changes  = 50 // a second
)

// manyAgent answers the watch of a node with many pods that change all the time.
type manyAgent struct{ seconds int }

func manyPod(i, restarts int) map[string]any {
	class, summary := "healthy", "Running 1/1"
	if i%50 == 0 {
		class, summary = "problem", fmt.Sprintf("CrashLoopBackOff 0/1 (%d restarts)", restarts)
	}
	return map[string]any{
		"metadata": map[string]any{"namespace": "many", "name": fmt.Sprintf("pod-%03d", i), "uid": fmt.Sprint(i), "creationTimestamp": time.Now()},
		"source":   "file", "spec": map[string]any{"containers": []any{}},
		"local": map[string]any{"summary": summary, "status": map[string]any{
			"phase": "Running", "containerStatuses": []any{map[string]any{"name": "main", "restartCount": restarts}},
		}},
		"lag": map[string]any{"state": "synced", "tookMs": 12},
		"why": map[string]any{"ok": class == "healthy", "class": class, "code": "Ready", "text": "ready since 1m", "since": time.Now()},
	}
}

func (a *manyAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/watch") {
		_, _ = w.Write([]byte(`{"items": []}`))
		return
	}
	encoder, flusher := json.NewEncoder(w), http.NewResponseController(w)
	send := func(id int, topic, kind string, object any) {
		_ = encoder.Encode(map[string]any{"id": id, "topic": topic, "type": kind, "object": object})
	}
	for i := range manyPods {
		send(0, "pods", "ADDED", manyPod(i, 0))
	}
	send(1, "pods", "SYNCED", nil)
	_ = flusher.Flush()
	ticker := time.NewTicker(time.Second / changes)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
		if n > a.seconds*changes {
			send(n+1, "pods", "BOOKMARK", nil)
		} else {
			send(n+1, "pods", "MODIFIED", manyPod(n*7%manyPods, n))
		}
		_ = flusher.Flush()
	}
}

// serveAgent serves the page of an agent and returns the address for a tab.
func serveAgent(t *testing.T, agent http.Handler) string {
	t.Helper()
	p, err := page.New(agent)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(p)
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // a test
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.CloseClientConnections)
	return s.URL + "/#c=" + p.NewCode(false)
}

// watchRows notes when the page hears of pods, and when the rows of all of them were drawn.
const watchRows = `(() => { const decode = TextDecoder.prototype.decode;
TextDecoder.prototype.decode = function(...parts) {
	if (!performance.getEntriesByName('heard').length) performance.mark('heard');
	return decode.apply(this, parts);
};
const seen = new MutationObserver(() => {
	if (document.querySelectorAll('.pods tbody tr').length < %d) return;
	seen.disconnect();
	requestAnimationFrame(() => setTimeout(() => performance.mark('drawn'), 0));
}); seen.observe(document, {subtree: true, childList: true}); })()`

// Many pods that change all the time show their last state. How busy the page is, is printed, not asserted: it depends on the machine.
func TestManyPods(t *testing.T) {
	seconds := 10
	address := serveAgent(t, &manyAgent{seconds})
	b := newTab(t)
	b.run(performance.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdppage.AddScriptToEvaluateOnNewDocument(fmt.Sprintf(watchRows, manyPods)).Do(ctx)
		return err
	}))
	b.open(address)
	time.Sleep(2 * time.Second) // a tab that is asked is busy with the answers
	b.wait(`performance.getEntriesByName('drawn').length === 1`)
	at := func(name string) float64 {
		return value[float64](b, `performance.getEntriesByName('`+name+`')[0]?.startTime ?? 0`)
	}
	t.Logf("first paint after %.0f ms, %d pods drawn after %.0f ms, %.0f ms after the stream began",
		at("first-contentful-paint"), manyPods, at("drawn"), at("drawn")-at("heard"))
	before, began := metrics(b), time.Now()
	time.Sleep(time.Duration(seconds-4) * time.Second)
	after, took := metrics(b), time.Since(began)
	last := seconds * changes
	b.wait(fmt.Sprintf(`document.querySelector('[data-key="many/pod-%03d"] [data-head=Restarts]').textContent === '%d'`, last*7%manyPods, last))
	share := func(metric string) float64 { return (after[metric] - before[metric]) / took.Seconds() * 100 }
	t.Logf("main thread %.0f %% busy (scripts %.0f, layout %.0f, style %.0f) for %v",
		share("TaskDuration"), share("ScriptDuration"), share("LayoutDuration"), share("RecalcStyleDuration"), took.Round(time.Second))
	b.run(chromedp.Evaluate(`location.hash = '#/pods/many/pod-007'`, nil))
	b.wait(`document.querySelector('h2')?.textContent === 'many/pod-007'`)
}

func metrics(b *tab) map[string]float64 {
	b.t.Helper()
	result := map[string]float64{}
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		values, err := performance.GetMetrics().Do(ctx)
		for _, metric := range values {
			result[metric.Name] = metric.Value
		}
		return err
	}))
	return result
}
