package server

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/heraldnode/herald/view"
)

// loadPeriod is how often a watch looks whether the loads changed. They are measured less often.
const loadPeriod = 5 * time.Second

// sendLoads sends the loads of the node and the selected pods, unless they were sent before. Every event has all of them: a client that
// missed one has lost nothing.
func (w *watchStream) sendLoads(ctx context.Context, id uint64) error {
	pods := w.server.config.Inspector.Pods(ctx)
	w.server.config.Loads.AddLoads(pods)
	selected, err := w.filter.Pods(pods, w.server.scene(ctx))
	if err != nil {
		return w.fail(err)
	}
	encoded, err := json.Marshal(view.NewLoads(w.server.config.Inspector.Node(ctx).Load, selected))
	if err != nil || bytes.Equal(encoded, w.sentLoads) {
		return err
	}
	kind := view.Modified
	if w.sentLoads == nil {
		kind = view.Added
	}
	w.sentLoads = encoded
	return w.writer.write(id, topicLoad, kind, json.RawMessage(encoded))
}
