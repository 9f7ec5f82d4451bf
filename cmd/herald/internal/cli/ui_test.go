package cli_test

import (
	"strings"
	"testing"
)

func TestUI_Refuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"ui", "--address", "0.0.0.0:1"}, "is not a loopback address"},
		{[]string{"ui", "--address", "nowhere"}, "must be unix:///path or 127.0.0.1:port"},
		{[]string{"ui", "--server", "unix:///nonexistent/herald.sock"}, "Is 'herald run' running?"},
	} {
		result := runHerald(test.args...)
		if result.status == 0 || !strings.Contains(result.stderr, test.want) {
			t.Errorf("%v: got %d, %q, want %q", test.args, result.status, result.stderr, test.want)
		}
	}
}
