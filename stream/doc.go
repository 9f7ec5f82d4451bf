// Package stream serves exec, attach, port-forward and run requests in the kubelet's form.
//
// A request names a pod and a container. The proxy finds them in what the node has observed, without listing the runtime, asks the
// runtime for the URL of a stream, and connects the client with it:
//
//   - SPDY and web sockets up to version 4 are copied byte by byte in both directions; client and runtime negotiate.
//   - A v5 web socket (exec, attach) ends here and is translated to SPDY v4, which is what runtimes serve.
//   - A web socket that tunnels SPDY (port-forward) ends here, and its messages are copied as bytes.
//
// The handlers do not authenticate: whoever calls them decides who may reach them. They need HTTP/1.1, and a response writer that
// http.ResponseController can hijack.
package stream
