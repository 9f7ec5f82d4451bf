package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/heraldnode/herald/server"
)

type fakeSummarizer struct{}

func (fakeSummarizer) Summary(_ context.Context, onlyCPUAndMemory bool) *statsapi.Summary {
	summary := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "n1"}, Pods: []statsapi.PodStats{}}
	if !onlyCPUAndMemory {
		summary.Node.Fs = &statsapi.FsStats{}
	}
	return summary
}

func TestRES30_Summary(t *testing.T) {
	s, err := server.New(server.Config{Agent: &fakeAgent{}, Summarizer: fakeSummarizer{}, ResourceMetrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct {
		code    int
		hasDisk bool
	}{
		"":                           {http.StatusOK, true},
		"?only_cpu_and_memory=false": {http.StatusOK, true},
		"?only_cpu_and_memory=true":  {http.StatusOK, false},
		"?only_cpu_and_memory=maybe": {http.StatusBadRequest, false},
	} {
		t.Run(query, func(t *testing.T) {
			response := httptest.NewRecorder()
			s.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/stats/summary"+query, http.NoBody))
			if response.Code != want.code {
				t.Fatalf("got %d: %s", response.Code, response.Body)
			}
			if want.code != http.StatusOK {
				return
			}
			var summary statsapi.Summary
			if err := json.Unmarshal(response.Body.Bytes(), &summary); err != nil {
				t.Fatal(err)
			}
			if summary.Node.NodeName != "n1" || (summary.Node.Fs != nil) != want.hasDisk {
				t.Errorf("got %+v", summary.Node)
			}
		})
	}
}
