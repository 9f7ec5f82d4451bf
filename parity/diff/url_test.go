package diff_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/heraldnode/herald/source"
)

// page is a URL whose content a test changes, and which counts how often it was read.
type page struct {
	mu    sync.Mutex // guards all below
	body  string
	reads int
}

func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	_, _ = w.Write([]byte(p.body))
}

// show changes the content and waits until it was read a few times.
func (p *page) show(t *testing.T, body string) {
	t.Helper()
	p.mu.Lock()
	p.body, p.reads = body, 0
	p.mu.Unlock()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.reads > 3, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const onePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"main","image":"web"}]}}`

func TestBUG21AURLThatIsEmptyForAWhileKeepsOrRegainsItsPods(t *testing.T) {
	const often = 5 * time.Millisecond
	t.Run("the kubelet", func(t *testing.T) {
		content := &page{}
		server := httptest.NewServer(content)
		defer server.Close()
		theirs := config.NewPodConfig(&record.FakeRecorder{}, nobody{})
		config.NewSourceURL(klog.Logger{}, server.URL, nil, types.NodeName(node), often, theirs.Channel(t.Context(), "http"))
		pods := 0
		for _, body := range []string{onePod, "", onePod} {
			content.show(t, body)
			for len(theirs.Updates()) > 0 {
				switch update := <-theirs.Updates(); update.Op {
				case kubetypes.ADD:
					pods += len(update.Pods)
				case kubetypes.REMOVE:
					pods -= len(update.Pods)
				}
			}
		}
		if pods != 0 {
			t.Error("the kubelet no longer has this fault")
		}
	})
	t.Run("Herald", func(t *testing.T) {
		content := &page{}
		server := httptest.NewServer(content)
		defer server.Close()
		url, err := source.NewHTTP(source.HTTPConfig{URL: server.URL, NodeName: node, Period: often})
		if err != nil {
			t.Fatal(err)
		}
		ours, err := source.NewMux(source.MuxConfig{Sources: []source.Source{url}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var mu sync.Mutex
		pods := 0
		all.Go(func() { _ = ours.Run(ctx) })
		all.Go(func() {
			for update := range ours.Updates() {
				mu.Lock()
				switch update.Op {
				case source.OpAdd:
					pods += len(update.Pods)
				case source.OpRemove:
					pods -= len(update.Pods)
				}
				mu.Unlock()
				update.Ack()
			}
		})
		for _, body := range []string{onePod, "", onePod} {
			content.show(t, body)
		}
		cancel()
		all.Wait()
		if pods != 1 {
			t.Errorf("Herald runs %d pods", pods)
		}
	})
}
