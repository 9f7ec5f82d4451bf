package cli_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heraldnode/herald/heraldtest"
)

// episode is an alert of a pod as a webhook is told: it starts once, whoever tells it.
type episode struct {
	pod      string
	startsAt time.Time
}

// alertReceiver is a webhook that kills the agent while it is told something.
type alertReceiver struct {
	*httptest.Server

	mu       sync.Mutex // guards all below
	statuses map[episode][]string
	onTold   func() // is called before the message is acknowledged
}

func newAlertReceiver(t *testing.T) *alertReceiver {
	t.Helper()
	r := &alertReceiver{statuses: map[episode][]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var message struct {
			Alerts []struct {
				Status   string            `json:"status"`
				Labels   map[string]string `json:"labels"`
				StartsAt time.Time         `json:"startsAt"`
			} `json:"alerts"`
		}
		if err := json.NewDecoder(request.Body).Decode(&message); err != nil {
			w.WriteHeader(http.StatusInternalServerError) // the agent was killed while it sent
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, a := range message.Alerts {
			key := episode{a.Labels["pod"], a.StartsAt.UTC()}
			r.statuses[key] = append(r.statuses[key], a.Status)
		}
		if r.onTold != nil {
			r.onTold()
			r.onTold = nil
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// check returns an error unless each episode was told as firing, then as resolved, and each pod has one.
func (r *alertReceiver) check(pods int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]int{}
	for key, statuses := range r.statuses {
		seen[key.pod]++
		last := statuses[len(statuses)-1]
		if statuses[0] != "firing" || last != "resolved" || slices.Index(statuses, "resolved") < 1 {
			return fmt.Errorf("pod %s, start %v: got %v, want firing, then resolved", key.pod, key.startsAt, statuses)
		}
	}
	for pod, count := range seen {
		if count != 1 {
			return fmt.Errorf("pod %s has %d episodes, want 1: %v", pod, count, r.statuses)
		}
	}
	if len(seen) != pods {
		return fmt.Errorf("got alerts of %d pods, want %d: %v", len(seen), pods, r.statuses)
	}
	return nil
}

const killRules = `apiVersion: heraldnode.github.io/v1alpha1
kind: AlertRules
groups:
- name: test
  rules:
  - alert: Ended
    on: pod
    expr: pod.phase == 'Failed'
    labels: {severity: warning}
`

// TestA1_AgentKilled kills an agent again and again: while it evaluates, writes, delivers, and before a delivery is acknowledged. Every
// firing that was told is followed by resolved, and no restart changes when an alert started (A1, A5).
func TestA1_AgentKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("runs agents in real time")
	}
	receiver := newAlertReceiver(t)
	n := &testNode{t: t, dir: shortTempDir(t)}
	for _, folder := range []string{"manifests", "alerts.d"} {
		if err := os.Mkdir(n.path(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.writeFile("alerts.d/a.yaml", killRules)
	n.writeFile("config.yaml", fmt.Sprintf("apiVersion: heraldnode.github.io/v1alpha1\nkind: HeraldConfiguration\n"+
		"alerting:\n  defaults: false\n  webhooks: [{name: test, url: %q}]\n", receiver.URL))
	n.args = []string{"--config", n.path("config.yaml")}
	n.start()
	t.Cleanup(n.clean)
	const rounds = 6
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	restart := func(delay time.Duration) {
		time.Sleep(delay)
		n.kill()
		n.start()
	}
	for round := range rounds {
		name := fmt.Sprint("p", round)
		if round%3 == 0 { // the agent is killed when the message has arrived, before it is acknowledged
			killed := make(chan struct{})
			receiver.mu.Lock()
			receiver.onTold = func() { n.kill(); close(killed) }
			receiver.mu.Unlock()
			n.write(name, "exit 3", "  restartPolicy: Never\n")
			<-killed
			n.start()
		} else {
			n.write(name, "exit 3", "  restartPolicy: Never\n")
			for range 3 { // at any instant: evaluation, record, delivery
				restart(time.Duration(random.IntN(400)) * time.Millisecond)
			}
		}
		heraldtest.Eventually(t, func() error {
			receiver.mu.Lock()
			defer receiver.mu.Unlock()
			for key := range receiver.statuses {
				if key.pod == name+"-n1" {
					return nil
				}
			}
			return fmt.Errorf("pod %s was not told of", name)
		})
		n.remove("manifests/" + name + ".yaml")
		restart(time.Duration(random.IntN(400)) * time.Millisecond)
	}
	heraldtest.Eventually(t, func() error { return receiver.check(rounds) })
}
