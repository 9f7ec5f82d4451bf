package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Summarizer measures the node and its pods.
type Summarizer interface {
	// Summary returns the use of resources. What could not be measured is left out.
	Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary
}

// serveSummary serves the kubelet's /stats/summary (RES-30).
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	onlyCPUAndMemory := false
	if value := r.URL.Query().Get("only_cpu_and_memory"); value != "" {
		var err error
		if onlyCPUAndMemory, err = strconv.ParseBool(value); err != nil {
			http.Error(w, "only_cpu_and_memory must be true or false", http.StatusBadRequest)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(s.config.Summarizer.Summary(r.Context(), onlyCPUAndMemory)); err != nil {
		s.config.Logger.Debug("Failed to write summary", "err", err)
	}
}
