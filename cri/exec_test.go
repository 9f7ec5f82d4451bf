package cri_test

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestPRB23ACommandsTimeIsCountedFromItsBeginning(t *testing.T) {
	slow := func(_ context.Context, execute func() (any, error)) (any, error) {
		time.Sleep(5 * time.Second)
		return execute()
	}
	cases := map[string]struct {
		fault fault
		want  error
	}{
		"a runtime that is slow to begin": {slow, nil},
		"a runtime that never answers":    {hangs, context.DeadlineExceeded},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.run(newPod())
				ctx, cancel := context.WithTimeout(w.Context(), time.Second)
				defer cancel()
				w.fake.next("ExecSync", tc.fault)
				begun := time.Now()
				if _, _, err := w.Exec(ctx, c.ID, []string{"true"}); !errors.Is(err, tc.want) {
					w.Errorf("the error is %v, want %v", err, tc.want)
				}
				if took := time.Since(begun); took > 15*time.Second {
					w.Errorf("it took %s", took)
				}
			})
		})
	}
}
