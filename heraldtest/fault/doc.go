// Package fault breaks HTTP traffic to an API server on purpose, as a test's script says.
//
// A [Injector] stands between a client and its server: [Injector.Wrap] puts it around any http.RoundTripper, one that talks to
// a real API server, an in-memory double, or the inside of a proxy. With no rules it only takes notes.
//
//	faults := fault.NewInjector()
//	client.Transport = faults.Wrap(client.Transport)
//
//	faults.Add(fault.On("PATCH", `/pods/.*/status`).Times(3).Reply(429, fault.RetryAfter(2*time.Second)))
//	heal := faults.Add(fault.On("watch", "/pods").Stall())
//	...
//	heal()
//
// A rule is a selection ([On] and what narrows it) and one fault. Faults of requests ([Selector.Delay], [Selector.Reply],
// [Selector.Reset], ...) nest in the order in which their rules were added, the first one outermost: a delay that was added
// before a reply delays it, a reply that was added before a delay leaves nothing to delay. Faults of streams
// ([Selector.Cut], [Selector.CutAfter], [Selector.Stall]) act on every response that passes, also on those that are
// already open when the rule is added: this is how a test cuts a running watch.
//
// [Injector.Requests] tells what was asked, what the client was told and what the server was sent, so that a test can count
// requests and see how many were open at once.
//
// Everything is safe for concurrent use. Time is the time package's and there are no sockets, so that it all works inside
// a testing/synctest bubble, provided that the script is made and used inside the bubble.
package fault
