package engine

import "context"

// Ready says that the engine can run pods and connect them, unless the call itself fails: then it can do neither.
func (e *Engine) Ready(ctx context.Context) (runtime, network error) {
	err := e.do(ctx, Call{Method: "Ready"}, func() error { return nil })
	return err, err
}
