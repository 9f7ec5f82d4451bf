package node_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/parity/internal/recorder"
)

// mustAnswer fails the test unless an HTTP request is answered with 200.
func (tr *trial) mustAnswer(url string) {
	tr.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	recorder.Eventually(tr.t, url, func() (string, bool) {
		request, err := http.NewRequestWithContext(tr.t.Context(), http.MethodGet, url, nil)
		if err != nil {
			tr.t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err.Error(), false
		}
		defer response.Body.Close()
		return response.Status, response.StatusCode == http.StatusOK
	})
}

// silentRegistry takes connections and says nothing, until the test ends.
func silentRegistry(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestAPodIsGoneAtOnceWhileAPullHangs(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	c := runs("main", "pause")
	c.Image, c.ImagePullPolicy = silentRegistry(t)+"/hangs:1", v1.PullAlways
	tr.bind(newPod("patient", c))
	tr.awaitEvent("patient", "Pulling", "hangs:1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the pull would hang for minutes
	defer cancel()
	tr.delete("patient")
	tr.AwaitDeleted("patient")
	if ctx.Err() != nil {
		t.Error("the pull kept it for more than 20 s")
	}
}

func TestAnImageThatIsNotThereIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	tr := tryOn(t, quiet.node(t))
	never, nowhere := runs("never", "pause"), runs("nowhere", "pause")
	never.Image, never.ImagePullPolicy = "herald.test/absent:1", v1.PullNever
	nowhere.Image = "127.0.0.1:1/absent:1"
	tr.bind(newPod("hopeful", never, nowhere, runs("fine", "pause")))
	tr.Await("hopeful", "waiting for its images", func(p *v1.Pod) bool {
		a, b := containerOf(p, "never").State.Waiting, containerOf(p, "nowhere").State.Waiting
		return a != nil && a.Reason == "ErrImageNeverPull" && b != nil && b.Reason == "ImagePullBackOff" &&
			containerOf(p, "fine").State.Running != nil
	})
	tr.awaitEvent("hopeful", "Failed", "absent:1")
}
