package fakeruntime

import "context"

// Ready says that the engine can run pods and connect them, unless the call itself fails: then it can do neither.
func (r *Runtime) Ready(ctx context.Context) (runtime, network error) {
	err := r.do(ctx, Call{Method: "Ready"}, func() error { return nil })
	return err, err
}
