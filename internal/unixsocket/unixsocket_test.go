package unixsocket_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/unixsocket"
)

func TestCheckPath(t *testing.T) {
	for name, test := range map[string]struct{ path, want string }{
		"socket":    {"/run/herald.sock", ""},
		"longest":   {"/" + strings.Repeat("s", unixsocket.MaxPath-1), ""},
		"too long":  {"/" + strings.Repeat("s", unixsocket.MaxPath), "must not exceed 107 bytes, the kernel's limit for sockets: it has 108; use a shorter path"},
		"empty":     {"", "must be an absolute path"},
		"relative":  {"run/herald.sock", "must be an absolute path"},
		"directory": {"/run/", "must be the path of a socket, not of a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := unixsocket.CheckPath(test.path); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
