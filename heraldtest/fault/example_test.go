package fault_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heraldnode/herald/heraldtest/fault"
)

// The server rejects two requests with 429. The trace shows what the client and the server saw.
func ExampleInjector() {
	faults := fault.NewInjector()
	client := &http.Client{Transport: faults.Wrap(&fakeServer{})}

	rule := fault.On("PATCH", `/pods/.*/status`).Times(2).Reply(http.StatusTooManyRequests, fault.RetryAfter(2*time.Second))
	faults.Add(rule)

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
		fmt.Println(request.Status, "forwarded:", len(request.Forwarded))
	}
	fmt.Println("faults:", rule.Fired())
	// Output:
	// 429 forwarded: 0
	// 429 forwarded: 0
	// 200 forwarded: 1
	// faults: 2
}
