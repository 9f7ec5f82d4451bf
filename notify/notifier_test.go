package notify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/notify"
)

func TestUpdate_FiringThenResolved(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		a := firingAlert("PodFailed", "web", 1)
		n.Update([]alert.Alert{a})
		synctest.Wait()
		for name, r := range network {
			if got := r.last(a.Key()); got.Status != "firing" || !got.StartsAt.Equal(a.StartsAt) {
				t.Errorf("%s: got %+v, want firing at once", name, got)
			}
		}
		pass(30 * time.Second)
		n.Update([]alert.Alert{resolvedAlert(a)})
		synctest.Wait()
		for name, r := range network {
			if got := r.last(a.Key()); got.Status != "resolved" || got.EndsAt.Sub(a.StartsAt) != 30*time.Second {
				t.Errorf("%s: got %+v, want resolved", name, got)
			}
		}
	})
}

func TestUpdate_PendingIsNotTold(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		a := firingAlert("PodFailed", "web", 1)
		a.State = alert.Pending
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		if got := network["hook"].count() + network["am"].count(); got != 0 {
			t.Fatalf("got %d requests", got)
		}
		a.State = alert.Firing
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		a.State = alert.Pending // its rule demands a longer time
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		for name, r := range network {
			if got := r.last(a.Key()).Status; got != "resolved" {
				t.Errorf("%s: got %q, want resolved", name, got)
			}
		}
	})
}

// A9: the rhythm that Alertmanager expects.
func TestAlertmanager_Refresh(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		am, hook := network["am"], network["hook"]
		a := firingAlert("PodFailed", "web", 1)
		n.Update([]alert.Alert{a})
		synctest.Wait()
		for minute := range 10 {
			if got, want := am.count(), minute+1; got != want {
				t.Fatalf("got %d requests after %d minutes, want %d", got, minute, want)
			}
			if last := am.last(a.Key()); last.EndsAt.Sub(last.at) != 4*time.Minute {
				t.Fatalf("ends %s after the message, want 4 minutes", last.EndsAt.Sub(last.at))
			}
			pass(time.Minute)
		}
		n.Update([]alert.Alert{resolvedAlert(a)})
		pass(20 * time.Minute)
		if got := am.count(); got != 11+1+15 {
			t.Errorf("got %d requests, want 11 of firing and 16 of resolved", got)
		}
		if got := hook.count(); got != 2 {
			t.Errorf("the webhook got %d requests, want 2", got)
		}
	})
}

func TestOutage_UnheardEpisode(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		network["hook"].set(dead)
		var a alert.Alert
		for episode := range 3 {
			a = firingAlert("PodFailed", "web", uint64(episode+1))
			n.Update([]alert.Alert{a})
			pass(time.Minute)
			n.Update([]alert.Alert{resolvedAlert(a)})
			pass(time.Hour)
		}
		network["hook"].set(healthy)
		pass(10 * time.Minute)
		hook := network["hook"]
		if got, want := hook.changes(a.Key()), []string{"firing 7320", "resolved 7320"}; !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		first, second := hook.accepted[a.Key()][0], hook.accepted[a.Key()][1]
		if gap := second.at.Sub(first.at); gap < time.Second {
			t.Errorf("resolved %s after firing", gap)
		}
		if got := second.Annotations["missed"]; got != "2" {
			t.Errorf("missed: got %q, want 2", got)
		}
		if got := network["am"].changes(a.Key()); len(got) != 6 {
			t.Errorf("the other sink got %q, want 3 episodes", got)
		}
	})
}

func TestOutage_RetriesAreSpaced(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		hook := network["hook"]
		hook.set(broken)
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		pass(24 * time.Hour)
		if got := hook.count(); got < 230 || got > 300 {
			t.Errorf("got %d requests in a day, want one every 5 minutes", got)
		}
		for i := 2; i < len(hook.requests); i++ {
			gap, least := hook.requests[i].Sub(hook.requests[i-1]), min(time.Second<<min(i-1, 20), 5*time.Minute)
			if gap < least || gap > least*6/5+time.Second {
				t.Fatalf("request %d after %s, want %s and some jitter", i, gap, least)
			}
		}
	})
}

func TestRefusal_OnceAnHour(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		hook := network["hook"]
		hook.set(unknown)
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		pass(10*time.Hour + time.Minute)
		if got := hook.count(); got < 9 || got > 11 {
			t.Errorf("got %d requests in ten hours", got)
		}
		if got := n.Failing(); got != 1 {
			t.Errorf("got %d failing sinks, want 1", got)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		hook := network["hook"]
		hook.set(busy)
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		pass(39 * time.Second)
		if got := hook.count(); got != 1 {
			t.Errorf("got %d requests, want 1: the receiver asked for 40 s", got)
		}
		hook.set(healthy)
		pass(30 * time.Second)
		if got := hook.count(); got != 2 {
			t.Errorf("got %d requests, want 2", got)
		}
	})
}

// A refused alert must not keep others from being delivered.
func TestRefusal_IsIsolated(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		am := network["am"]
		am.refuses = func(a *receivedAlert) bool { return a.Labels["pod"] == "p7" }
		var all []alert.Alert
		for i := range 100 {
			all = append(all, firingAlert("PodFailed", fmt.Sprintf("p%d", i), 1))
		}
		n.Update(all)
		pass(30 * time.Second)
		for i := range all {
			want := "firing"
			if all[i].Labels["pod"] == "p7" {
				want = ""
			}
			if got := am.last(all[i].Key()).Status; got != want {
				t.Errorf("%s: got %q, want %q", all[i].Key(), got, want)
			}
		}
		pass(11 * time.Minute)
		for _, state := range n.Sinks() {
			if state.IsFailing != (state.Kind == notify.KindAlertmanager) {
				t.Errorf("%s: failing %v", state.Name, state.IsFailing)
			}
			if state.Kind == notify.KindAlertmanager && state.Waiting != 1 {
				t.Errorf("got %d waiting, want 1", state.Waiting)
			}
		}
	})
}

// TestDeliveries checks what people see of the delivery of an alert.
func TestDeliveries(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		fired, muted := firingAlert("PodFailed", "p0", 1), firingAlert("PodFailed", "p1", 1)
		muted.Mute.SilencedBy = []string{"s1"}
		network["hook"].set(broken)
		n.Update([]alert.Alert{fired, muted})
		synctest.Wait()
		states := func() map[string]alert.Delivery {
			byName := map[string]alert.Delivery{}
			for _, delivery := range n.Deliveries()[fired.Key()] {
				byName[delivery.Receiver] = delivery
			}
			return byName
		}
		got := states()
		hook := got["webhook/hook"]
		if hook.State != alert.Failing || !strings.Contains(hook.Problem, "500") || !hook.NextTry.After(time.Now()) {
			t.Errorf("got %+v of a webhook that answers 500, want a problem and the next attempt", hook)
		}
		if delivery, found := got["log"]; found {
			t.Errorf("got %+v, want none of the log", delivery)
		}
		if others := n.Deliveries()[muted.Key()]; len(others) > 0 {
			t.Errorf("got %+v of a muted alert, want nothing", others)
		}
		network["hook"].set(healthy)
		pass(time.Minute)
		for name, delivery := range states() {
			if delivery.State != alert.Delivered || delivery.Problem != "" {
				t.Errorf("%s: got %+v, want delivered", name, delivery)
			}
		}
	})
}

func TestWebhook_Batching(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		hook := network["hook"]
		n.Update([]alert.Alert{firingAlert("PodFailed", "p0", 1)})
		synctest.Wait()
		if got := hook.count(); got != 1 {
			t.Fatalf("got %d requests, want the first at once", got)
		}
		for i := range 5 {
			pass(time.Second)
			n.Update([]alert.Alert{firingAlert("PodFailed", fmt.Sprintf("p%d", i+1), 1)})
		}
		n.Update([]alert.Alert{firingAlert("Other", "p0", 1)})
		synctest.Wait()
		if got := hook.count(); got != 2 {
			t.Fatalf("got %d requests, want one of each group", got)
		}
		pass(10 * time.Second)
		if got := hook.count(); got != 3 {
			t.Fatalf("got %d requests, want one more for the five that followed", got)
		}
		if alerts, err := decode([]byte(hook.bodies[2]), false); err != nil || len(alerts) != 6 {
			t.Errorf("got %d alerts, %v, want the whole group", len(alerts), err)
		}
	})
}

func TestMute(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		pass(time.Second)
		silent := firingAlert("PodFailed", "silent", 1)
		silent.Mute.SilencedBy = []string{"s1"}
		told := firingAlert("PodFailed", "told", 1)
		n.Update([]alert.Alert{silent, told})
		pass(time.Minute)
		told.Mute.SilencedBy = []string{"s1"}
		n.Update([]alert.Alert{told})
		pass(5 * time.Minute)
		if got := len(network["am"].accepted[told.Key()]); got != 7 {
			t.Errorf("Alertmanager was told %d times, want it to be refreshed while silenced", got)
		}
		unmuted := resolvedAlert(silent)
		unmuted.Mute = alert.Mute{}
		n.Update([]alert.Alert{unmuted, resolvedAlert(told)})
		pass(time.Minute)
		for name, r := range network {
			if got := r.changes(silent.Key()); len(got) != 0 {
				t.Errorf("%s: got %q of a silenced alert", name, got)
			}
			if got := r.last(told.Key()).Status; got != "resolved" {
				t.Errorf("%s: got %q, want resolved", name, got)
			}
		}
	})
}

func TestMute_Ends(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		a := firingAlert("PodFailed", "web", 1)
		a.Mute.InhibitedBy = []string{"x"}
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		a.Mute = alert.Mute{}
		n.Update([]alert.Alert{a})
		pass(time.Second)
		if got := network["hook"].last(a.Key()).Status; got != "firing" {
			t.Errorf("got %q, want firing", got)
		}
	})
}

// The receiver may have heard what it has not acknowledged: it must not be left with an alert that fires for ever.
func TestMute_AnswerLost(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		pass(time.Second)
		for _, r := range network {
			r.set(answerLost)
		}
		a := firingAlert("PodFailed", "web", 1)
		n.Update([]alert.Alert{a})
		synctest.Wait()
		a.Mute.SilencedBy = []string{"s1"}
		n.Update([]alert.Alert{a})
		for _, r := range network {
			r.set(healthy)
		}
		pass(time.Hour)
		n.Update([]alert.Alert{resolvedAlert(a)})
		pass(time.Minute)
		for name, r := range network {
			if got := r.last(a.Key()).Status; got != "resolved" {
				t.Errorf("%s: got %q, want resolved", name, got)
			}
		}
	})
}

func TestResolve_Delay(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		a := firingAlert("PodFailed", "web", 1)
		n.Update([]alert.Alert{a})
		synctest.Wait()
		n.Update([]alert.Alert{resolvedAlert(a)})
		pass(999 * time.Millisecond)
		if got := network["am"].last(a.Key()).Status; got != "firing" {
			t.Errorf("got %q within a second of firing", got)
		}
		pass(time.Second)
		if got := network["am"].last(a.Key()).Status; got != "resolved" {
			t.Errorf("got %q, want resolved", got)
		}
	})
}

func TestFlap_IsToldAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		a := firingAlert("PodFailed", "web", 1)
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		n.Update([]alert.Alert{resolvedAlert(a)})
		pass(time.Minute)
		a.Flaps = 1
		n.Update([]alert.Alert{a})
		pass(time.Minute)
		if got, want := network["hook"].changes(a.Key()), []string{"firing 0", "resolved 0", "firing 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := network["hook"].last(a.Key()).Annotations["flaps"]; got != "1" {
			t.Errorf("flaps: got %q", got)
		}
	})
}

func TestSlowSink_DelaysNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		network["am"].set(hanging)
		for i := range 20 {
			a := firingAlert(fmt.Sprintf("Rule%d", i), "web", 1)
			n.Update([]alert.Alert{a})
			synctest.Wait()
			if got := network["hook"].last(a.Key()).Status; got != "firing" {
				t.Fatalf("%s: got %q, want firing at once", a.Key(), got)
			}
		}
	})
}

func TestRateLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		var all []alert.Alert
		for i := range 200 {
			all = append(all, firingAlert(fmt.Sprintf("Rule%d", i), "web", 1))
		}
		n.Update(all)
		synctest.Wait()
		if got := network["hook"].count(); got != notify.RequestBurst {
			t.Errorf("got %d requests at once, want %d", got, notify.RequestBurst)
		}
		pass(10 * time.Second)
		if got, want := network["hook"].count(), notify.RequestBurst+10*notify.RequestRate; got > want || got < want-1 {
			t.Errorf("got %d requests in 10 s, want %d", got, want)
		}
		pass(10 * time.Second)
		if got := network["hook"].count(); got != 200 {
			t.Errorf("got %d requests, want 200", got)
		}
		if got := network["am"].count(); got != 4 {
			t.Errorf("Alertmanager got %d requests, want 4 batches", got)
		}
	})
}

func TestSinks(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		network["hook"].set(dead)
		n.Update([]alert.Alert{firingAlert("PodFailed", "web", 1)})
		pass(9 * time.Minute)
		if got := n.Failing(); got != 0 {
			t.Errorf("got %d failing sinks after 9 minutes", got)
		}
		pass(2 * time.Minute)
		if got := n.Failing(); got != 1 {
			t.Errorf("got %d failing sinks after 11 minutes", got)
		}
		for _, state := range n.Sinks() {
			switch state.Kind {
			case notify.KindWebhook:
				if !state.IsFailing || state.Waiting != 1 || state.LastError != "dial: connection refused" || state.FailingSince.Unix() != epoch ||
					!state.NextAttempt.After(time.Now()) || !state.LastSuccess.IsZero() || state.Name != "webhook/hook" {
					t.Errorf("got %+v", state)
				}
			case notify.KindAlertmanager:
				if state.IsFailing || state.Waiting != 0 || state.LastSuccess.IsZero() || state.Name != "alertmanager/am" {
					t.Errorf("got %+v", state)
				}
			}
		}
		network["hook"].set(healthy)
		pass(10 * time.Minute)
		if got := n.Failing(); got != 0 {
			t.Errorf("got %d failing sinks after the recovery", got)
		}
	})
}

// Memory is bounded by alerts, not by the length of an outage.
func TestOutage_Memory(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		network["hook"].set(dead)
		endAll(n, notify.MaxItems+500)
		if items, _ := n.Size(); items > notify.MaxItems {
			t.Errorf("got %d alerts, want at most %d", items, notify.MaxItems)
		}
	})
}

// It matters for a day that an alert is resolved.
func TestOutage_Expires(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		network["hook"].set(dead)
		endAll(n, 20)
		pass(23 * time.Hour)
		if items, _ := n.Size(); items != 20 {
			t.Errorf("got %d alerts after 23 hours, want 20", items)
		}
		pass(2 * time.Hour)
		if items, units := n.Size(); items != 0 || units != 0 {
			t.Errorf("got %d alerts and %d units after a day, want none", items, units)
		}
	})
}

// endAll lets that many alerts fire and end.
func endAll(n *run, count int) {
	for i := range count {
		a := firingAlert("PodFailed", fmt.Sprintf("p%d", i), 1)
		n.Update([]alert.Alert{a})
		n.Update([]alert.Alert{resolvedAlert(a)})
	}
}

func TestReconcile(t *testing.T) {
	inBubble(t, func(t *testing.T, n *run, network receivers) {
		a, b := firingAlert("PodFailed", "a", 1), firingAlert("PodFailed", "b", 1)
		n.Update([]alert.Alert{a, b})
		pass(time.Minute)
		n.Reconcile([]alert.Alert{b})
		pass(time.Minute)
		for name, r := range network {
			if got := r.last(a.Key()).Status; got != "resolved" {
				t.Errorf("%s: got %q, want resolved", name, got)
			}
			if got := r.last(b.Key()).Status; got != "firing" {
				t.Errorf("%s: got %q, want firing", name, got)
			}
		}
	})
}
