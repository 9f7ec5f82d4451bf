package notify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldnode/herald/alert"
)

// step is a step of the property test: a change of an alert, a receiver or the agent.
type step struct {
	Operation string
	Alert     int
	Receiver  string
	Behaviour behaviour
	Wait      time.Duration
}

// String returns the step as a failure report shows it.
func (s step) String() string {
	return fmt.Sprintf("{%s %d, %s %s, wait %s}", s.Operation, s.Alert, s.Receiver, s.Behaviour, s.Wait)
}

const modelAlerts = 5

var operations = map[string]func(*world, step){
	"fire":         func(w *world, s step) { w.fire(s.Alert) },
	"fire again":   func(w *world, s step) { w.fire(s.Alert) },
	"resolve":      func(w *world, s step) { w.resolve(s.Alert) },
	"recover":      func(w *world, s step) { w.change(s.Alert, func(a *alert.Alert) { a.State = alert.Recovering }) },
	"flap":         func(w *world, s step) { w.flap(s.Alert) },
	"silence":      func(w *world, s step) { w.mute(s.Alert, []string{"s1"}) },
	"unsilence":    func(w *world, s step) { w.mute(s.Alert, nil) },
	"receiver":     func(w *world, s step) { w.network[s.Receiver].set(s.Behaviour) },
	"receiver too": func(w *world, s step) { w.network[s.Receiver].set(s.Behaviour) },
	"restart":      func(w *world, _ step) { w.restart(w.stopped()) },
	"kill":         func(w *world, _ step) { w.restart(w.killed(0)) },
	"kill, old":    func(w *world, _ step) { w.restart(w.killed(10 * time.Minute)) },
	"reconcile":    func(w *world, _ step) { w.run.Reconcile(w.known()) },
	"storm":        func(w *world, s step) { w.storm(s.Alert) },
	"heal":         func(w *world, s step) { w.network[s.Receiver].set(healthy) },
	"nothing":      func(*world, step) {},
	"change value": func(w *world, s step) {
		w.change(s.Alert, func(a *alert.Alert) { a.Annotations = map[string]string{"summary": "new"} })
	},
	"repeat update": func(w *world, _ step) { w.run.Update(w.known()) },
}

func operationNames() []string {
	var names []string
	for name := range operations {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var anyStep = rapid.Custom(func(t *rapid.T) step {
	waits := []time.Duration{0, 0, 300 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 4 * time.Minute, 20 * time.Minute}
	return step{
		Operation: rapid.SampledFrom(operationNames()).Draw(t, "operation"),
		Alert:     rapid.IntRange(0, modelAlerts-1).Draw(t, "alert"),
		Receiver:  rapid.SampledFrom([]string{"am", "hook"}).Draw(t, "receiver"),
		Behaviour: rapid.SampledFrom(behaviours).Draw(t, "behaviour"),
		Wait:      rapid.SampledFrom(waits).Draw(t, "wait"),
	}
})

// savedCopy is the checkpoint at some time.
type savedCopy struct {
	at   time.Time
	data []byte
}

// world is the engine, the agent and the receivers.
type world struct {
	t       *testing.T
	folder  string
	network receivers
	run     *run
	alerts  map[int]alert.Alert // as the engine knows them
	hidden  map[int]bool        // the present episode was silenced at some time
	copies  []savedCopy
}

func (w *world) change(i int, change func(*alert.Alert)) {
	if a, ok := w.alerts[i]; ok && a.IsFiring() {
		a.State = alert.Firing
		change(&a)
		w.update(i, a)
	}
}

func (w *world) update(i int, a alert.Alert) {
	w.alerts[i] = a
	w.run.Update([]alert.Alert{a})
}

func (w *world) fire(i int) {
	old, isKnown := w.alerts[i]
	if isKnown && old.IsFiring() {
		return
	}
	time.Sleep(time.Millisecond) // episodes do not start at the same time
	w.hidden[i] = false
	w.update(i, firingAlert(fmt.Sprintf("Rule%d", i%2), fmt.Sprintf("p%d", i), old.Episode+1))
}

func (w *world) resolve(i int) { w.change(i, func(a *alert.Alert) { *a = resolvedAlert(*a) }) }

func (w *world) flap(i int) {
	if a, ok := w.alerts[i]; ok && a.State == alert.Resolved {
		a.State, a.EndsAt, a.Flaps = alert.Firing, time.Time{}, a.Flaps+1
		w.update(i, a)
	}
}

func (w *world) mute(i int, by []string) {
	w.change(i, func(a *alert.Alert) { a.Mute.SilencedBy = by })
	w.hidden[i] = w.hidden[i] || by != nil
}

func (w *world) storm(i int) {
	for range 20 {
		w.fire(i)
		w.resolve(i)
	}
}

// known returns the alerts that the engine has not forgotten.
func (w *world) known() []alert.Alert {
	var all []alert.Alert
	for i := range modelAlerts {
		if a, ok := w.alerts[i]; ok && (a.IsFiring() || time.Since(a.EndsAt) < 15*time.Minute) {
			all = append(all, a)
		}
	}
	return all
}

func (w *world) file() string { return filepath.Join(w.folder, "notify") }

func (w *world) copyCheckpoint() {
	data, err := os.ReadFile(w.file())
	if err == nil {
		w.copies = append(w.copies, savedCopy{time.Now(), data})
	}
}

// stopped stops the agent in an orderly way.
func (w *world) stopped() func() {
	return func() {
		if err := w.run.stop(); err != nil {
			w.t.Error(err)
		}
	}
}

// killed returns a function that stops the agent, after which the checkpoint is as old as that, or a little newer.
func (w *world) killed(age time.Duration) func() {
	return func() {
		w.copyCheckpoint()
		w.stopped()()
		w.copies = slices.DeleteFunc(w.copies, func(c savedCopy) bool { return time.Since(c.at) > age })
		if len(w.copies) == 0 {
			return
		}
		w.copies = w.copies[:1] // what was saved since is lost for good
		if err := os.WriteFile(w.file(), w.copies[0].data, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// restart starts the agent again, which learns its alerts from the engine.
func (w *world) restart(stop func()) {
	stop()
	w.run = start(w.t, w.folder, testConfig(w.network))
	w.run.Update(w.known())
	w.run.Reconcile(w.known())
}

// settle heals all receivers and waits for what is retried hourly.
func (w *world) settle() {
	for _, r := range w.network {
		r.set(healthy)
	}
	w.run.Reconcile(w.known())
	pass(3 * time.Hour)
}

// check returns the violations of A1 and A2, after everything had time to be delivered.
func (w *world) check() (violations []string) {
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	w.settle()
	for name, r := range w.network {
		for i, a := range w.alerts {
			last := r.last(a.Key())
			hasFired := slices.ContainsFunc(r.accepted[a.Key()], func(b receipt) bool { return b.StartsAt.Equal(a.StartsAt) })
			switch {
			case !w.hidden[i] && !hasFired:
				report("A1: %s: alert %d of %s was never told", name, i, a.StartsAt)
			case a.IsFiring() && !a.Mute.IsMuted() && last.Status != "firing":
				report("A1: %s: alert %d fires, but was told last as %q", name, i, last.Status)
			case !a.IsFiring() && last.Status == "firing":
				report("A1: %s: alert %d was told as firing, and is resolved", name, i)
			}
		}
	}
	for i := range modelAlerts {
		w.resolve(i)
	}
	w.settle()
	for name, r := range w.network {
		for i, a := range w.alerts {
			if got := r.last(a.Key()).Status; got == "firing" {
				report("A1: %s: alert %d was told as firing, and never as resolved", name, i)
			}
		}
		violations = append(violations, r.faults...)
		for i := notifyBurst; i < len(r.requests); i++ {
			if gap := r.requests[i].Sub(r.requests[i-notifyBurst]); gap < time.Second {
				report("%s: %d requests within %s", name, notifyBurst, gap)
			}
		}
	}
	if items, units := w.run.Size(); items != 0 || units != 0 {
		report("%d alerts and %d units are still kept", items, units)
	}
	return violations
}

// notifyBurst is more than the requests that one run may send to a sink in a second. A restart fills the bucket.
const notifyBurst = 100

// A1: every firing is followed by resolved or is firing now. A2: firing is acknowledged before resolved is sent. Both hold for each sink,
// whatever receivers do, and whenever the agent is killed.
func TestA1A2_Delivery(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(anyStep, 1, 40).Draw(rt, "steps")
		var violations []string
		synctest.Test(t, func(t *testing.T) {
			w := &world{
				t: t, folder: t.TempDir(), network: receivers{"hook": newReceiver(), "am": newReceiver()},
				alerts: map[int]alert.Alert{}, hidden: map[int]bool{},
			}
			w.run = start(t, w.folder, testConfig(w.network))
			for _, s := range steps {
				operations[s.Operation](w, s)
				pass(s.Wait)
				w.copyCheckpoint()
			}
			violations = w.check()
			w.stopped()()
		})
		if len(violations) > 0 {
			rt.Fatalf("%q", violations)
		}
	})
}
