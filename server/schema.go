package server

import (
	_ "embed" // for the schema
	"net/http"
)

// schema describes all objects of the query API. A test generates it from the Go types.
//
//go:embed schema.json
var schema []byte

// serveSchema serves the JSON Schema (draft 2020-12) of the query API.
func (s *Server) serveSchema(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/schema+json")
	if _, err := w.Write(schema); err != nil {
		s.config.Logger.Debug("Failed to write schema", "err", err)
	}
}
