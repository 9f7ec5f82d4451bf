package nodeserver

import (
	"encoding/json"
	"net/http"
)

// serveSummary serves the use of resources. As with the kubelet, everything but "true" asks for all of it.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	only := r.URL.Query()["only_cpu_and_memory"]
	summary := s.config.Summarizer.Summary(r.Context(), len(only) == 1 && only[0] == "true")
	w.Header().Set("Content-Type", jsonType)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(summary); err != nil {
		s.config.Logger.Debug("Failed to write summary", "err", err)
	}
}

// serveConfigz serves the configuration.
func (s *Server) serveConfigz(w http.ResponseWriter, _ *http.Request) {
	content, err := s.config.Configz()
	if err == nil {
		content, err = json.Marshal(map[string]json.RawMessage{"kubeletconfig": content})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(content)
}
