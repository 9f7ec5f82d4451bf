package imagegc_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heraldnode/herald/imagegc"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }

func ids(candidates []imagegc.Candidate) string {
	var all []string
	for _, candidate := range candidates {
		all = append(all, candidate.ID)
	}
	return strings.Join(all, " ")
}

func TestIGC2_Validate(t *testing.T) {
	if err := imagegc.DefaultPolicy().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*imagegc.Policy){
		"high threshold 101% must": func(p *imagegc.Policy) { p.HighThresholdPercent = 101 },
		"low threshold -1% must":   func(p *imagegc.Policy) { p.LowThresholdPercent = -1 },
		"less than the high":       func(p *imagegc.Policy) { p.LowThresholdPercent = 85 },
		"minimum age -1s":          func(p *imagegc.Policy) { p.MinAge = -time.Second },
		"maximum age -1s":          func(p *imagegc.Policy) { p.MaxAge = -time.Second },
		"more than the minimum":    func(p *imagegc.Policy) { p.MaxAge = time.Minute },
	} {
		policy := imagegc.DefaultPolicy()
		change(&policy)
		if err := policy.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: got %v, want %q", policy, err, name)
		}
	}
}

func TestIGC1_Off(t *testing.T) {
	for policy, want := range map[imagegc.Policy]bool{
		imagegc.DefaultPolicy():                                   false,
		{HighThresholdPercent: 100, LowThresholdPercent: 80}:      true,
		{HighThresholdPercent: 100, MaxAge: time.Hour}:            false,
		{HighThresholdPercent: 99, LowThresholdPercent: 80}:       false,
		{HighThresholdPercent: 100, MinAge: 10 * time.Nanosecond}: true,
	} {
		if got := policy.IsOff(); got != want {
			t.Errorf("%+v: got %v, want %v", policy, got, want)
		}
	}
}

func TestIGC7_Goal(t *testing.T) {
	bytes := func(capacity, available int64) imagegc.Usage {
		return imagegc.Usage{Bytes: imagegc.Amount{Capacity: capacity, Available: available}}
	}
	withInodes := bytes(1000, 500)
	withInodes.Inodes = imagegc.Amount{Capacity: 100, Available: 3}
	tests := map[string]struct {
		usage   imagegc.Usage
		percent int
		want    imagegc.Goal
		isFull  bool
	}{
		"half":                   {bytes(1000, 500), 50, imagegc.Goal{}, false},
		"just below":             {bytes(1000, 160), 84, imagegc.Goal{}, false},
		"rounded up":             {bytes(1000, 159), 85, imagegc.Goal{Bytes: 200}, true},
		"full":                   {bytes(1000, 0), 100, imagegc.Goal{Bytes: 200}, true},
		"more than the capacity": {bytes(1000, 2000), 0, imagegc.Goal{}, false},
		"small":                  {bytes(7, 1), 86, imagegc.Goal{Bytes: 1}, true},
		"huge":                   {bytes(math.MaxInt64, 1), 100, imagegc.Goal{Bytes: math.MaxInt64 / 5}, true},
		"no inodes left":         {withInodes, 97, imagegc.Goal{Inodes: 20}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			goal, isFull := imagegc.DefaultPolicy().Goal(test.usage)
			if goal != test.want || isFull != test.isFull || test.usage.UsedPercent() != test.percent {
				t.Errorf("got %+v %v %d%%, want %+v %v %d%%", goal, isFull, test.usage.UsedPercent(), test.want, test.isFull, test.percent)
			}
		})
	}
}

func TestIGC5_Records(t *testing.T) {
	images := []imagegc.Image{{ID: "a", InUse: true}, {ID: "b"}, {ID: "c", Handler: "vm"}}
	records, changed := imagegc.Records(nil).Update(images, at(0))
	if !changed {
		t.Error("new images are no change")
	}
	if _, changed = records.Update(images, at(5)); changed {
		t.Error("the same images are a change")
	}
	images[0].InUse, images[1].InUse = false, true
	if records, changed = records.Update(images[:2], at(10)); !changed {
		t.Error("a first use and a removal are no change")
	}
	want := imagegc.Records{"a": {FirstDetected: at(0), LastUsed: at(0)}, "b": {FirstDetected: at(0), LastUsed: at(10)}}
	if diff := cmp.Diff(want, records); diff != "" {
		t.Error(diff)
	}
	if got := records.Without(images[0]); len(got) != 1 || len(records) != 2 {
		t.Errorf("got %v and %v", got, records)
	}
}

func TestIGC6_Order(t *testing.T) {
	images := []imagegc.Image{
		{ID: "recent"}, {ID: "long-ago"}, {ID: "never-new"}, {ID: "never-old"}, {ID: "used", InUse: true}, {ID: "pinned", Pinned: true},
		{ID: "unknown"}, {ID: ""},
	}
	records := imagegc.Records{
		"recent": {at(0), at(50)}, "long-ago": {at(1), at(10)}, "never-new": {FirstDetected: at(40)}, "never-old": {FirstDetected: at(2)},
		"used": {at(0), at(60)}, "pinned": {FirstDetected: at(0)}, "": {FirstDetected: at(0)},
	}
	if got, want := ids(records.Candidates(images)), "never-old never-new long-ago recent"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestIGC8_MinimumAge(t *testing.T) {
	candidates := []imagegc.Candidate{
		{imagegc.Image{ID: "new"}, imagegc.Record{FirstDetected: at(59)}},
		{imagegc.Image{ID: "old-enough"}, imagegc.Record{FirstDetected: at(58)}},
		{imagegc.Image{ID: "used-in-this-pass"}, imagegc.Record{FirstDetected: at(0), LastUsed: at(60)}},
	}
	if got := ids(imagegc.DefaultPolicy().Removable(candidates, at(60))); got != "old-enough" {
		t.Errorf("got %s", got)
	}
}

func TestIGC13_MaximumAge(t *testing.T) {
	candidates := []imagegc.Candidate{
		{imagegc.Image{ID: "unused"}, imagegc.Record{FirstDetected: at(0), LastUsed: at(30)}},
		{imagegc.Image{ID: "exactly"}, imagegc.Record{FirstDetected: at(0), LastUsed: at(40)}},
		{imagegc.Image{ID: "never-used"}, imagegc.Record{FirstDetected: at(0)}},
		{imagegc.Image{ID: "just-pulled"}, imagegc.Record{FirstDetected: at(99)}}, // BUG-132
	}
	policy := imagegc.DefaultPolicy()
	if got := ids(policy.Expired(candidates, at(100))); got != "" {
		t.Errorf("without a maximum: got %s", got)
	}
	policy.MaxAge = time.Hour
	if got := ids(policy.Expired(candidates, at(100))); got != "unused never-used" {
		t.Errorf("got %s", got)
	}
}
