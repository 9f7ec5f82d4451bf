package status_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldnode/herald/status"
)

func TestSM95AVolumesHealthChangesWithItsVerdictsNotWithItsMessages(t *testing.T) {
	onNode(t, nil, func(t *testing.T, n *node) {
		p := n.bound("web")
		bad := []status.VolumeCondition{{Status: "Unhealthy", Reason: "Slow", Message: "5 s"}, {Status: "Unhealthy", Reason: "Full"}}
		if n.SetPodVolumeHealth(p.UID, "data", bad) {
			t.Fatal("a pod without a status has healthy volumes")
		}
		n.SetPodStatus(p, runningStatus())
		synctest.Wait()
		n.faults.Forget()
		steps := map[string]struct {
			conditions []status.VolumeCondition
			changed    bool
		}{
			"1 first":                      {bad, true},
			"2 same":                       {bad, false},
			"3 other message, other order": {[]status.VolumeCondition{bad[1], {Status: "Unhealthy", Reason: "Slow", Message: "9 s"}}, false},
			"4 one less":                   {bad[:1], true},
			"5 healthy again":              {nil, true},
			"6 still healthy":              {nil, false},
		}
		for _, name := range []string{"1 first", "2 same", "3 other message, other order", "4 one less", "5 healthy again", "6 still healthy"} {
			time.Sleep(time.Minute)
			before := n.GetPodVolumeHealth(p.UID)["data"].Since
			if changed := n.SetPodVolumeHealth(p.UID, "data", steps[name].conditions); changed != steps[name].changed {
				t.Fatalf("%s: changed %v", name, changed)
			}
			health, known := n.GetPodVolumeHealth(p.UID)["data"]
			if moved := health.Since.After(before); !known || moved != steps[name].changed { // SM-96
				t.Fatalf("%s: known %v, since %v, before %v", name, known, health.Since, before)
			}
		}
		if n.writes("PATCH") != 0 {
			t.Fatal("Kubernetes has no field for it, and yet something was sent")
		}
	})
}
