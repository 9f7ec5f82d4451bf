package derive_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/heraldnode/herald/derive"
)

// notCompared are the fields that Equal passes over, each with all that is below it. Fields of the API that are in
// neither place fail the test below.
var notCompared = map[string]string{
	".NominatedNodeName":                    "the scheduler's",
	".QOSClass":                             "fixed at creation",
	".ResourceClaimStatuses":                "the claim controller's",
	".ExtendedResourceClaimStatus":          "the scheduler's",
	".NodeAllocatableResourceClaimStatuses": "the scheduler's",
	".Conditions[0].LastProbeTime":          "no news",
	".Conditions[0].LastTransitionTime":     "follows from the status",
	".Conditions[0].ObservedGeneration":     "no news",
}

// filled is a status in which every field has a value, every list one element and every pointer a target.
func filled(seed int64) *v1.PodStatus {
	status := &v1.PodStatus{}
	randfill.NewWithSeed(seed).NilChance(0).NumElements(1, 1).Funcs(
		func(t *metav1.Time, c randfill.Continue) {
			*t = metav1.NewTime(noon.Add(time.Duration(c.Int31()) * time.Second))
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(int64(c.Int31()), resource.DecimalSI)
		},
	).Fill(status)
	status.Conditions[0].Type = v1.PodReady
	return status
}

func TestSM32EveryFieldIsComparedOrOnTheListOfThoseThatAreNot(t *testing.T) {
	used := map[string]bool{}
	original := filled(1)
	for path := range changes(reflect.ValueOf(original.DeepCopy()).Elem(), "") {
		changed := original.DeepCopy()
		applied := false
		for at, apply := range changes(reflect.ValueOf(changed).Elem(), "") {
			if at == path {
				apply()
				applied = true
				break
			}
		}
		if !applied {
			t.Fatalf("%s: no way to change it", path)
		}
		ignored := ignoredBy(path)
		used[ignored] = true
		if equal := derive.Equal(original, changed); equal != (ignored != "") || derive.Equal(changed, original) != equal {
			t.Errorf("%s: equal is %v after a change: compare it, or put it on the list with a reason", path, equal)
		}
	}
	for path := range notCompared {
		if !used[path] {
			t.Errorf("%s is on the list and does not exist", path)
		}
	}
}

func ignoredBy(path string) string {
	for ignored := range notCompared {
		if strings.HasPrefix(path, ignored) {
			return ignored
		}
	}
	return ""
}

// changes goes through all ways to change one thing in a value: a leaf's value, a pointer to nil, an element taken
// away.
func changes(v reflect.Value, path string) func(yield func(string, func()) bool) {
	return func(yield func(string, func()) bool) { eachChange(v, path, yield) }
}

func eachChange(v reflect.Value, path string, yield func(string, func()) bool) bool {
	switch value := v.Addr().Interface().(type) {
	case *metav1.Time:
		return yield(path, func() { value.Time = value.Add(time.Second) })
	case *resource.Quantity:
		return yield(path, func() { value.Add(resource.MustParse("1")) })
	}
	empty := func() { v.SetZero() }
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !eachChange(v.Field(i), path+"."+v.Type().Field(i).Name, yield) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		return yield(path+"=nil", empty) && eachChange(v.Elem(), path, yield)
	case reflect.Slice:
		return yield(path+"=empty", empty) && eachChange(v.Index(0), path+"[0]", yield)
	case reflect.Map:
		return yield(path+"=empty", empty) && eachMapChange(v, path, yield)
	default:
		return yield(path, func() { changeLeaf(v) })
	}
}

func eachMapChange(v reflect.Value, path string, yield func(string, func()) bool) bool {
	key := v.MapKeys()[0]
	value := reflect.New(v.Type().Elem()).Elem()
	value.Set(v.MapIndex(key))
	again := yield(path+"[key]", func() {
		v.SetMapIndex(key, reflect.Value{})
		other := reflect.New(v.Type().Key()).Elem()
		other.SetString(key.String() + "x")
		v.SetMapIndex(other, value)
	})
	return again && eachChange(value, path+"[value]", func(path string, change func()) bool {
		return yield(path, func() { change(); v.SetMapIndex(key, value) })
	})
}

func changeLeaf(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	default:
		panic(fmt.Sprintf("the API has a %s now: teach this test to change it", v.Type()))
	}
}

func TestSM32WhatCountsInConditions(t *testing.T) {
	of := func(conditions ...v1.PodCondition) *v1.PodStatus { return &v1.PodStatus{Conditions: conditions} }
	ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue}
	unready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse}
	disrupted := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}
	foreign := v1.PodCondition{Type: "lb", Status: v1.ConditionTrue}
	tests := map[string]struct {
		a, b *v1.PodStatus
		want bool
	}{
		"their order does not":            {of(ready, disrupted), of(disrupted, ready), true},
		"others' conditions do not":       {of(ready, foreign), of(ready), true},
		"one that was lost does":          {of(ready, disrupted), of(ready), false},
		"the shared one does":             {of(disrupted), of(v1.PodCondition{Type: v1.DisruptionTarget}), false},
		"of two of a type the last does":  {of(unready, ready), of(ready), true},
		"and the first does not":          {of(ready, unready), of(ready), false},
		"nil and empty are the same list": {of(), &v1.PodStatus{Conditions: []v1.PodCondition{}}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if derive.Equal(test.a, test.b) != test.want || derive.Equal(test.b, test.a) != test.want {
				t.Fatalf("equal is not %v", test.want)
			}
		})
	}
	for _, kind := range append(derive.OwnedConditions(), v1.DisruptionTarget) {
		if derive.Equal(of(v1.PodCondition{Type: kind}), of()) {
			t.Errorf("%s does not count", kind)
		}
	}
}

func TestSM32QuantitiesAreComparedByValueAndEmptyIsAbsent(t *testing.T) {
	equal := func(a, b v1.PodStatus) {
		t.Helper()
		if !derive.Equal(&a, &b) {
			t.Errorf("%+v and %+v are not equal", a, b)
		}
	}
	equal(v1.PodStatus{AllocatedResources: quantities("cpu", "1000m")}, v1.PodStatus{AllocatedResources: quantities("cpu", "1")})
	equal(v1.PodStatus{AllocatedResources: v1.ResourceList{}}, v1.PodStatus{})
	equal(v1.PodStatus{PodIPs: []v1.PodIP{}, ContainerStatuses: statuses{}}, v1.PodStatus{})
	utc, local := metav1.NewTime(noon), metav1.NewTime(noon.In(time.FixedZone("east", 3600)))
	equal(v1.PodStatus{StartTime: &utc}, v1.PodStatus{StartTime: &local})
}

func TestSM32AComparisonAllocatesNothing(t *testing.T) {
	one := filled(2)
	other := one.DeepCopy()
	if n := testing.AllocsPerRun(100, func() { derive.Equal(one, other) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestOwnedConditionsAreTheCallersCopy(t *testing.T) {
	got := derive.OwnedConditions()
	if !slices.Contains(got, v1.PodReady) || slices.Contains(got, v1.DisruptionTarget) || len(got) != 8 {
		t.Fatalf("%v", got)
	}
	got[0] = "spoiled"
	if !derive.IsOwnedCondition(v1.PodScheduled) || derive.IsOwnedCondition("spoiled") || derive.IsOwnedCondition(v1.DisruptionTarget) {
		t.Fatal("the list can be changed from outside")
	}
}
