package stream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// options are the streams that a client asks for.
type options struct {
	stdin, stdout, stderr, tty bool
}

var errNoStreams = errors.New("you must specify at least 1 of stdin, stdout, stderr")

// parseOptions reads the kubelet's parameters, which are set only if they are 1. A terminal has no separate stderr (STR-1).
func parseOptions(query url.Values) (options, error) {
	isSet := func(name string) bool { return query.Get(name) == "1" }
	o := options{stdin: isSet("input"), stdout: isSet("output"), tty: isSet("tty")}
	o.stderr = isSet("error") && !o.tty
	if !o.stdin && !o.stdout && !o.stderr {
		return o, errNoStreams
	}
	return o, nil
}

// parsePorts returns the ports that a web socket names in its URL. SPDY names them in the headers of its streams, also inside a tunnel
// (STR-24).
func parsePorts(r *http.Request) ([]int32, error) {
	if !isWebSocket(r.Header) || isTunnel(r.Header) {
		return nil, nil
	}
	values := r.URL.Query()["port"]
	if len(values) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	var ports []int32
	for _, value := range values {
		if value == "" {
			return nil, errors.New(`query parameter "port" cannot be empty`)
		}
		for text := range strings.SplitSeq(value, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("unable to parse %q as a port: %w", value, err)
			}
			if port == 0 {
				return nil, fmt.Errorf("port %q must be > 0", value)
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}
