package process_test

import (
	"testing"

	"github.com/heraldnode/herald/process"
)

func TestServiceUnit(t *testing.T) {
	for name, tc := range map[string]struct{ cgroups, want string }{
		"version 2":       {"0::/system.slice/herald.service\n", "herald.service"},
		"version 1":       {"12:memory:/\n1:name=systemd:/system.slice/my.service\n0::/\n", "my.service"},
		"only controller": {"12:memory:/system.slice/herald.service\n0::/\n", ""},
		"session":         {"0::/user.slice/user-0.slice/session-3.scope\n", ""},
		"app of a user":   {"0::/user.slice/user-1.slice/user@1.service/app.slice/terminal.scope\n", ""},
		"no systemd":      {"0::/\n", ""},
		"empty":           {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := process.ServiceUnit(tc.cgroups); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
