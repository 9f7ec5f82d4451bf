package fakeruntime_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/heraldtest"
	"github.com/heraldnode/herald/heraldtest/fakeruntime"
	"github.com/heraldnode/herald/plan"
)

// The runtime loses the response to a start. The retry finds the container that is already running.
func ExampleRuntime() {
	ctx := context.Background()
	runtime := fakeruntime.New()
	pod := heraldtest.NewPod("web")

	sandboxID, err := runtime.StartSandbox(ctx, pod, 0)
	if err != nil {
		panic(err)
	}
	start := plan.Start{Container: &pod.Spec.Containers[0], Kind: derive.RegularContainer}

	remove := runtime.Inject(fakeruntime.Method("StartContainer"),
		fakeruntime.Fault{LostResponse: true, Err: errors.New("connection lost")})
	fmt.Println(runtime.StartContainer(ctx, pod, sandboxID, start))
	remove()
	fmt.Println(runtime.StartContainer(ctx, pod, sandboxID, start))

	fmt.Println(runtime.Transcript())
	fmt.Println(len(runtime.Violations()), "violations")
	// Output:
	// connection lost
	// <nil>
	// [sandbox web_default #0 start web_default/main #0]
	// 0 violations
}
