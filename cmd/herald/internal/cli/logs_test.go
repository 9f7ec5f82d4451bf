package cli_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/heraldnode/herald/heraldtest"
)

// logs on a real agent, without an API server.
func TestLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs an agent and pods")
	}
	n := startNode(t)
	n.write("web", "seq 1 100; exec sleep 1000", "  - {name: side, image: host, command: [sh, -c, 'echo beside; exec sleep 1000']}\n")
	n.write("job", "echo first; sleep 2; echo last", "  restartPolicy: Never\n")
	n.write("crash", "echo started; exit 3", "")
	n.write("stuck", "true", "  initContainers: [{name: first, image: host, command: [sleep, '1000']}]\n")
	n.must(0, "wait pod web-n1 -n shop "+waitReady)
	logs := func(args ...string) result {
		return runHerald(append([]string{"logs", "--server", n.address(), "-n", "shop"}, args...)...)
	}
	heraldtest.Eventually(t, func() error { // written, not only started
		if main, side := logs("web-n1", "-c", "main", "--tail", "1"), logs("web-n1", "-c", "side"); main.stdout != "100\n" || side.stdout != "beside\n" {
			return fmt.Errorf("got %+v and %+v", main, side)
		}
		return nil
	})
	var hundred strings.Builder
	for i := range 100 {
		fmt.Fprintln(&hundred, i+1)
	}
	const defaulted = "Defaulted container \"main\" out of: main, side\n"
	tests := map[string]struct {
		args []string
		want result
	}{
		"all":               {[]string{"web-n1", "-c", "main"}, result{0, hundred.String(), ""}},
		"default container": {[]string{"web-n1", "--tail", "1"}, result{0, "100\n", defaulted}},
		"named container":   {[]string{"pod/web-n1", "-c", "side"}, result{0, "beside\n", ""}},
		"inline container":  {[]string{"web-n1", "side"}, result{0, "beside\n", ""}},
		"limit":             {[]string{"web-n1", "-c", "main", "--limit-bytes", "4"}, result{0, "1\n2\n", ""}},
		"since":             {[]string{"web-n1", "-c", "main", "--since-time", "2099-01-01T00:00:00Z"}, result{0, "", ""}},
		"all containers": {[]string{"web-n1", "--all-containers", "--prefix", "--tail", "1"},
			result{0, "[pod/web-n1/main] 100\n[pod/web-n1/side] beside\n", ""}},
		"no such container": {[]string{"web-n1", "-c", "x"}, result{1, "", "herald: container x is not valid for pod web-n1 out of: main, side\n"}},
		"not started": {[]string{"stuck-n1", "-c", "main"},
			result{1, "", "herald: container \"main\" in pod \"stuck-n1\" is waiting to start: PodInitializing\n"}},
		"no previous": {[]string{"-p", "web-n1", "-c", "main"},
			result{1, "", "herald: previous terminated container \"main\" in pod \"web-n1\" not found\n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := logs(test.args...); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got := logs("-f", "job-n1"); got.status != 0 || got.stdout != "first\nlast\n" { // stderr may say that it waits for the start
		t.Errorf("follow to the end: got %+v", got)
	}
	n.must(0, "wait pod crash-n1 -n shop --for=condition=Ready=false --timeout=3m")
	heraldtest.Eventually(t, func() error {
		if got := logs("crash-n1"); got.stdout != "started\n" {
			return fmt.Errorf("a container that ended: got %+v", got)
		}
		return nil
	})
	if got := logs("web-n1", "-c", "side", "--timestamps"); !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ beside\n$`).MatchString(got.stdout) {
		t.Errorf("timestamps: got %+v", got)
	}
	if got := logs("nothing-n1"); got.status != 1 || !strings.Contains(got.stderr, `pods "nothing-n1" not found`) {
		t.Errorf("no such pod: got %+v", got)
	}
	for _, args := range [][]string{{}, {"web-n1", "--tail", "-2"}, {"web-n1", "--since", "1s", "--since-time", "2026-01-01T00:00:00Z"},
		{"web-n1", "--since-time", "x"}, {"web-n1", "-c", "main", "--all-containers"}} {
		if got := logs(args...); got.status != 2 {
			t.Errorf("%v: got %+v, want status 2", args, got)
		}
	}
}
