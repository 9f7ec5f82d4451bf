package fault_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// A server that is too busy for two requests, and the client's trace of it.
func ExampleInjector() {
	faults := fault.NewInjector()
	client := &http.Client{Transport: faults.Wrap(&server{})}

	busy := fault.On("PATCH", `/pods/.*/status`).Times(2).Reply(http.StatusTooManyRequests, fault.RetryAfter(2*time.Second))
	faults.Add(busy)

	for range 3 {
		req, err := http.NewRequest(http.MethodPatch, "https://api"+status, http.NoBody) //nolint:noctx // an example
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
	}

	for _, request := range faults.Requests().Filter("patch", "/status$") {
		fmt.Println(request.Status, "sent to the server:", len(request.Forwarded))
	}
	fmt.Println("fired:", busy.Fired())
	// Output:
	// 429 sent to the server: 0
	// 429 sent to the server: 0
	// 200 sent to the server: 1
	// fired: 2
}
