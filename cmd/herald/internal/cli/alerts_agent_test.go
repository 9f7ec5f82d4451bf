package cli_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/alert/rule"
	"github.com/heraldnode/herald/cmd/herald/internal/client"
	"github.com/heraldnode/herald/cmd/herald/internal/replay"
	"github.com/heraldnode/herald/heraldtest"
)

// shopRules are the rules of the agent's own file.
const shopRules = ruleHeader + `  - alert: CartCrashes
    on: container
    expr: container.reason == 'CrashLoopBackOff' && pod.label('app') == 'cart'
    value: container.restarts
    keep_firing_for: 10m
    labels: {severity: warning, team: shop}
    annotations: {summary: 'exit {{ $facts.container.last_exit_code }}'}
    actions: [{type: snapshot, mode: dry-run}]
  - alert: WebRestarted
    on: container
    expr: container.restarted('24h') >= 1 && pod.label('app') == 'web'
    labels: {severity: info}
  - alert: SlowCart
    on: pod
    expr: "!pod.ready && pod.label('app') == 'cart'"
    for: 12h
    labels: {severity: info}
`

// testAlerts asks for alerts, rules and silences, and changes a rule file.
func (n *testNode) testAlerts(t *testing.T) {
	n.mustPrint(0, "alerts", "STATE    ALERT", "firing   CartCrashes", "shop/cart-n1 main", "warning", "exit 3", "pending")
	n.mustPrint(0, "alerts --all -o wide", "pending", "SlowCart", "fires in 1", "VALUE")
	n.mustPrint(0, "alerts -n shop -o jsonpath={.items[0].labels.team}", "shop")
	n.mustPrint(0, "alerts -n other", "No alerts are firing.")
	n.sample("alerts", "alerts --all")
	n.mustPrint(0, "alerts rules", "CartCrashes", "alerts.d/shop.yaml", "PodCrashLooping", "default")
	n.sample("alerts-rules", "alerts rules")
	n.mustPrint(0, "status", "\nalerts      ", " firing, ", "\nfiring      CartCrashes", "exit 3")

	n.writeFile("alerts.d/shop.yaml", strings.Replace(shopRules, "container.reason", "container.raeson", 1))
	n.mustPrint(0, "sources", "rules    1 error", "shop.yaml:8:", "raeson", "are in force")
	n.sample("sources", "sources")
	n.mustPrint(0, "alerts rules", "shop.yaml:8:", "CartCrashes")
	n.mustPrint(0, "alerts", "firing   CartCrashes")
	n.writeFile("alerts.d/shop.yaml", shopRules)
	n.mustPrint(0, "sources", "rules    ok")

	if out := n.must(0, "alerts silence alertname=CartCrashes --for 2h --comment 'new disk'"); !strings.Contains(out, `alertname="CartCrashes"`) {
		t.Errorf("got %s", out)
	}
	n.mustPrint(0, "alerts", "firing (silenced)   CartCrashes")
	n.sample("alerts-silence-list", "alerts silence list")
	id := n.must(0, "alerts silence list -o jsonpath={.items[0].id}")
	n.must(0, "alerts silence expire "+id)
	n.mustPrint(0, "alerts", "firing   CartCrashes")
	n.mustPrint(0, "alerts silence list", "There are no silences.")
	n.mustPrint(1, "alerts silence expire "+id, "does not exist")

	n.mustPrint(0, "alerts check --live "+n.path("alerts.d/shop.yaml"), "3 rules are valid", "NOW", "firing", "CartCrashes", "shop/cart-n1 main")
	n.sample("alerts-check", "alerts check --live "+n.path("alerts.d/shop.yaml"))
	n.mustPrint(0, "history pod/cart-n1 -n shop", "alert CartCrashes firing")
	n.mustPrint(0, "actions", "DECISION", "snapshot   shop/cart-n1", "CartCrashes", "dry-run")
	n.sample("actions", "actions")
	n.mustPrint(1, "actions resume", "actions are not suspended")
}

// episodes returns when alerts fired, and whether they were resolved, by the records of the agent and by a replay of the others.
func (n *testNode) episodes(set *rule.Set) (live, replayed map[string]bool, err error) {
	now := time.Now()
	book, err := replay.Read(n.t.Context(), client.New(n.address(), time.Minute), now.Add(-time.Hour), now)
	if err != nil {
		return nil, nil, err
	}
	live, replayed = map[string]bool{}, map[string]bool{}
	describe := func(labels alert.Labels, startsAt time.Time) string {
		return fmt.Sprintf("%s %s", labels.Key(), startsAt.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))
	}
	report := book.Run(set)
	isReplayed := map[string]bool{}
	for i := range report.Rules {
		isReplayed[report.Rules[i].Rule.Name] = true
		for _, episode := range report.Rules[i].Episodes {
			replayed[describe(episode.Labels, episode.StartsAt)] = !episode.EndsAt.IsZero()
		}
	}
	for i := range book.Records {
		if change := book.Records[i].Alert; change != nil && isReplayed[change.Labels[alert.LabelName]] {
			live[describe(change.Labels, change.StartsAt)] = change.State == alert.Resolved
		}
	}
	return live, replayed, nil
}

// testReplay checks that a replay of the history has the episodes that the agent recorded when they happened, although it was killed
// meanwhile.
func (n *testNode) testReplay(t *testing.T) {
	own, err := rule.Parse([]byte(shopRules), n.path("alerts.d/shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rule.Merge(nil, rule.Default(), own)
	if err != nil {
		t.Fatal(err)
	}
	heraldtest.Eventually(t, func() error { // an alert may fire between the two
		live, replayed, err := n.episodes(set)
		if err != nil {
			return err
		}
		if len(live) == 0 || !maps.Equal(live, replayed) {
			return fmt.Errorf("got\n%s\nrecorded\n%s", list(replayed), list(live))
		}
		return nil
	})
	n.mustPrint(0, "alerts test --replay 1h -v --for 12h "+n.path("alerts.d/shop.yaml"), "CartCrashes", "EPISODES", "WITH FOR 12h", "firing   CartCrashes",
		"did not fire: SlowCart")
	n.sample("alerts-test", "alerts test --replay 7d --for 1m "+n.path("alerts.d/shop.yaml"))
	n.mustPrint(0, "alerts test --replay 1h", "skipped, because the history does not have the load: ContainerMemoryNearLimit")
}

func list(episodes map[string]bool) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(episodes)) {
		lines = append(lines, fmt.Sprintf("%s resolved %v", key, episodes[key]))
	}
	return strings.Join(lines, "\n")
}
