package eviction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/heraldnode/herald/eviction"
)

func newPolicy(t *testing.T, settings eviction.Settings) *eviction.Policy {
	t.Helper()
	policy, err := eviction.NewPolicy(settings)
	if err != nil {
		t.Fatal(err)
	}
	return &policy
}

// describe returns a threshold in short.
func describe(t eviction.Threshold) string {
	value := fmt.Sprintf("%.3f", t.Value.Share)
	if t.Value.Quantity != nil {
		value = t.Value.Quantity.String()
	}
	text := fmt.Sprint(t.Signal, "<", value)
	if t.IsSoft {
		text += " for " + t.GracePeriod.String()
	}
	if t.MinReclaim != nil {
		text += " reclaim"
	}
	if t.ReportOnly {
		text += " reported"
	}
	return text
}

func TestEVI3_EVI4_EVI6_Thresholds(t *testing.T) {
	defaults := []string{
		"allocatableMemory.available<100Mi", "imagefs.available<0.150", "imagefs.inodesFree<0.050", "memory.available<100Mi",
		"nodefs.available<0.100", "nodefs.inodesFree<0.050", "pid.available<0.050 reported",
	}
	type values = map[string]string
	for name, test := range map[string]struct {
		settings eviction.Settings
		want     []string
	}{
		"defaults": {eviction.Settings{}, defaults},
		"replaced": {
			eviction.Settings{Hard: values{"memory.available": "1Gi"}},
			[]string{"allocatableMemory.available<1Gi", "memory.available<1Gi"},
		},
		"none": {eviction.Settings{Hard: values{}}, nil},
		"merged": {
			eviction.Settings{Hard: values{"memory.available": "100Mi", "nodefs.available": "10%"}, MergeDefaults: true}, defaults,
		},
		"merged, PIDs": {
			eviction.Settings{Hard: values{
				"pid.available": "1000", "memory.available": "0%", "nodefs.available": "100%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
				"imagefs.inodesFree": "0%",
			}, MergeDefaults: true},
			[]string{"pid.available<1k"},
		},
		"allocatable is not enforced": {
			eviction.Settings{Hard: values{"memory.available": "1Gi"}, IgnoreAllocatable: true}, []string{"memory.available<1Gi"},
		},
		"soft": {
			eviction.Settings{
				Hard: values{}, Soft: values{"memory.available": "50%"}, SoftGracePeriod: values{"memory.available": "90s", "nodefs.available": "1s"},
				MinimumReclaim: values{"memory.available": "1Mi", "pid.available": "0"},
			},
			[]string{"memory.available<0.500 for 1m30s reclaim"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, threshold := range newPolicy(t, test.settings).Thresholds {
				got = append(got, describe(threshold))
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEVI4_InvalidSettings(t *testing.T) {
	type values = map[string]string
	for want, settings := range map[string]eviction.Settings{
		`evictionHard.memory.free: unknown signal: must be one of memory.available, `:                 {Hard: values{"memory.free": "1"}},
		`evictionHard.containerfs.available: cannot be set: it has the threshold of nodefs`:           {Hard: values{"containerfs.available": "1"}},
		`evictionHard.logs: unknown signal`:                                                           {Hard: values{"logs": "1"}},
		`evictionHard.memory.available: invalid value "-1": must be positive`:                         {Hard: values{"memory.available": "-1"}},
		`evictionHard.memory.available: invalid value "0": must be positive`:                          {Hard: values{"memory.available": "0"}},
		`evictionHard.memory.available: invalid value "x": must be a quantity like 100Mi, or a perce`: {Hard: values{"memory.available": "x"}},
		`evictionHard.nodefs.available: invalid value "101%": must be between 0% and 100%`:            {Hard: values{"nodefs.available": "101%"}},
		`evictionHard.nodefs.available: invalid value "-1%": must be between`:                         {Hard: values{"nodefs.available": "-1%"}},
		`evictionHard.nodefs.available: invalid value "NaN%": must be a percentage`:                   {Hard: values{"nodefs.available": "NaN%"}},
		`evictionSoft.memory.available: has no grace period in evictionSoftGracePeriod`:               {Soft: values{"memory.available": "1Gi"}},
		`evictionSoftGracePeriod.memory.available: invalid value "soon": must be a duration`:          {SoftGracePeriod: values{"memory.available": "soon"}},
		`evictionSoftGracePeriod.memory.available: invalid value "-1s": must not be negative`:         {SoftGracePeriod: values{"memory.available": "-1s"}},
		`evictionMinimumReclaim.nodefs.available: invalid value "0%": must be positive`:               {MinimumReclaim: values{"nodefs.available": "0%"}},
		`evictionMinimumReclaim.nodefs.available: invalid value "-1": must be positive`:               {MinimumReclaim: values{"nodefs.available": "-1"}},
		`evictionMinimumReclaim.x: unknown signal`:                                                    {MinimumReclaim: values{"x": "1"}},
		`evictionPressureTransitionPeriod: invalid value -1s: must not be negative`:                   {PressureTransitionPeriod: -time.Second},
	} {
		if _, err := eviction.NewPolicy(settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	_, err := eviction.NewPolicy(eviction.Settings{Hard: values{"a": "1", "b": "1"}})
	if problems := eviction.FieldErrors(err); len(problems) != 2 || problems[1].Field != "evictionHard.b" {
		t.Errorf("got error %v, want both problems", err)
	}
}

// What the thresholds keep free cannot be allocated to pods; soft thresholds keep nothing.
func TestKeptFree(t *testing.T) {
	policy := newPolicy(t, eviction.Settings{
		Soft: map[string]string{"memory.available": "1Gi"}, SoftGracePeriod: map[string]string{"memory.available": "1m"},
	})
	kept := policy.KeptFree(v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourceEphemeralStorage: resource.MustParse("1000"), v1.ResourceCPU: resource.MustParse("2"),
	})
	if len(kept) != 2 || kept.Memory().String() != "100Mi" || kept.StorageEphemeral().Value() != 100 {
		t.Errorf("got %v", kept)
	}
}
