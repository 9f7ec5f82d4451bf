package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// shelf answers for an API server that has every pod, each with its name for a UID and with the same status. It remembers
// nothing, so that what a process keeps in memory is the manager's.
type shelf struct {
	version string
	status  v1.PodStatus
	// gets and patches count requests.
	gets, patches atomic.Int64
}

func (s *shelf) config() *rest.Config {
	return inProtobuf(&rest.Config{Host: "http://shelf", Transport: s, QPS: -1})
}

// pod is what the shelf has under that name.
func (s *shelf) pod(name string) *v1.Pod {
	p := threeContainers(name, types.UID(name))
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.ResourceVersion, p.Status = s.version, *s.status.DeepCopy()
	return p
}

func (s *shelf) pods(count int) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = s.pod(fmt.Sprintf("9f1c1a52-7d3e-4a0c-8a9b-%012d", i))
	}
	return pods
}

// await waits for that many requests, and a moment longer, so that the last answer is read.
func (s *shelf) await(requests *atomic.Int64, count int64) error {
	for range 6000 {
		if requests.Load() >= count {
			time.Sleep(50 * time.Millisecond)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%d requests in a minute, want %d", requests.Load(), count)
}

// RoundTrip answers a GET with the pod, and a PATCH as if it had been carried out.
func (s *shelf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	p := s.pod(path.Base(strings.TrimSuffix(req.URL.Path, "/status")))
	if req.Method == http.MethodPatch {
		s.patches.Add(1)
		p.ResourceVersion = "2"
	} else {
		s.gets.Add(1)
	}
	var answer any = p
	if strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata") {
		answer = &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: p.ObjectMeta,
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer %s %s: %w", req.Method, req.URL, err)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}
