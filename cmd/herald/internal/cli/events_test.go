package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/server"
)

// Records of equal events are one line with their number; events of other types are left out.
func TestEvents(t *testing.T) {
	backOff := func(seq uint64, ago time.Duration, count int) history.Record {
		return history.Record{
			Seq: seq, Time: time.Now().Add(-ago), Kind: history.KindEvent, PodRef: history.PodRef{Namespace: "shop", Name: "cart-n1", UID: "1"},
			Event: &history.Event{Type: "Warning", Reason: "BackOff", Message: "Back-off\x1b[2J", Container: "web", Count: count},
		}
	}
	pulled := backOff(2, 3*time.Hour, 1)
	pulled.Event.Type, pulled.Event.Reason, pulled.Event.Message = "Normal", "Pulled", "pulled"
	agent, address := startCannedAgent(t, map[string]any{
		"GET /herald/v1/events": server.HistoryList{Items: []history.Record{backOff(4, 2*time.Hour, 13), backOff(3, 3*time.Hour, 1), pulled}},
	})
	for args, want := range map[string]string{
		"--for pod/cart-n1 -n shop": `LAST SEEN   TYPE      REASON    OBJECT            MESSAGE        COUNT
3h          Normal    Pulled    pod/cart-n1 web   pulled         1
120m        Warning   BackOff   pod/cart-n1 web   Back-off^[[2J   14
`,
		"-A --types=warning --no-headers": "shop   120m   Warning   BackOff   pod/cart-n1 web   Back-off^[[2J   14\n",
	} {
		got := runHerald(append([]string{"events", "-s", address}, strings.Fields(args)...)...)
		fields := func(text string) [][]string {
			var lines [][]string
			for line := range strings.Lines(text) {
				lines = append(lines, strings.Fields(line))
			}
			return lines
		}
		if diff := cmp.Diff(fields(want), fields(got.stdout)); diff != "" || got.status != 0 {
			t.Errorf("%s: got status %d, %s%s", args, got.status, got.stderr, diff)
		}
	}
	if !strings.Contains(agent.query, "limit=200") {
		t.Errorf("got query %s", agent.query)
	}
	for args, status := range map[string]int{"--types x": 2, "--for svc/x": 2, "--limit 0": 2, "-w -o yaml": 2, "--for pod/x -s unix:///nowhere/s": 3} {
		if got := runHerald(append([]string{"events", "-s", address}, strings.Fields(args)...)...); got.status != status {
			t.Errorf("%s: got status %d, %s, want %d", args, got.status, got.stderr, status)
		}
	}
}
