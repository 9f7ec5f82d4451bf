package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is a quantity, or a share of a signal's capacity.
type Amount struct {
	// Quantity is nil for a share.
	Quantity *resource.Quantity
	// Share is between 0 and 1. It has the kubelet's precision, which decides about single bytes.
	Share float32
}

// of returns the quantity for a capacity.
func (a Amount) of(capacity int64) resource.Quantity {
	if a.Quantity != nil {
		return a.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity)*float64(a.Share)), resource.BinarySI)
}

// Threshold is met while less than Value is available.
type Threshold struct {
	Signal Signal
	Value  Amount
	// IsSoft tells the two thresholds of a signal apart.
	IsSoft bool
	// GracePeriod is how long the threshold must be met before pods are evicted (EVI-11). A threshold without one is hard.
	GracePeriod time.Duration
	// MinReclaim is how much more must be available before the threshold counts as no longer met. Nil is nothing.
	MinReclaim *Amount
	// ReportOnly thresholds make the Node report a condition, and have no other effect.
	ReportOnly bool
}

func (t *Threshold) isHard() bool { return t.GracePeriod == 0 }

// isMet reports whether less than the threshold is available, or, if it was met before, less than threshold and minimum reclaim
// together (EVI-5).
func (t *Threshold) isMet(observed Observation, wasMet bool) bool {
	limit := t.Value.of(observed.Capacity)
	if wasMet && t.MinReclaim != nil {
		limit.Add(t.MinReclaim.of(observed.Capacity))
	}
	return limit.CmpInt64(observed.Available) > 0
}

// Settings are the settings of KubeletConfiguration about eviction. Maps have the names of signals as keys.
type Settings struct {
	// Hard has the thresholds at which pods are evicted at once (evictionHard). Nil is DefaultHard.
	Hard map[string]string
	// MergeDefaults adds the signals of DefaultHard that Hard does not have (mergeDefaultEvictionSettings).
	MergeDefaults bool
	// Soft has the thresholds that must be met for a grace period (evictionSoft), which SoftGracePeriod has (evictionSoftGracePeriod).
	Soft, SoftGracePeriod map[string]string
	// MinimumReclaim is what must become available beyond a threshold that was met (evictionMinimumReclaim).
	MinimumReclaim map[string]string
	// MaxPodGracePeriod limits the grace period of pods that are evicted for soft thresholds, in seconds (evictionMaxPodGracePeriod).
	// 0 is one second, negative no limit.
	MaxPodGracePeriod int
	// PressureTransitionPeriod is how long a condition is reported after it was last observed (evictionPressureTransitionPeriod).
	// Zero is 5 minutes.
	PressureTransitionPeriod time.Duration
	// IgnoreAllocatable does not act when pods together approach the limit of their cgroup. It is for nodes that do not enforce it:
	// enforceNodeAllocatable without pods (EVI-6).
	IgnoreAllocatable bool
}

// DefaultHard returns the kubelet's hard thresholds (EVI-3).
func DefaultHard() map[string]string {
	return map[string]string{
		string(MemoryAvailable): "100Mi",
		string(NodeFSAvailable): "10%", string(NodeFSInodesFree): "5%", string(ImageFSAvailable): "15%", string(ImageFSInodesFree): "5%",
	}
}

// defaultPIDs is the share of process IDs below which the node reports PIDPressure by default. The kubelet reports none.
const defaultPIDs = "5%"

const defaultTransitionPeriod = 5 * time.Minute

// Policy is when pods are evicted, and which conditions the Node reports. The zero value evicts nothing.
type Policy struct {
	// Thresholds are the configured ones. Those of container file systems and logs follow from those of the data and of images, see
	// Observe.
	Thresholds []Threshold
	// MaxPodGracePeriod and TransitionPeriod are those of Settings.
	MaxPodGracePeriod time.Duration
	TransitionPeriod  time.Duration
}

// FieldError is an invalid setting.
type FieldError struct {
	// Field is the name in KubeletConfiguration, followed by a dot and the name of the signal for entries of maps.
	Field   string
	Message string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// FieldErrors returns the problems of an error of NewPolicy.
func FieldErrors(err error) []*FieldError {
	joined, _ := err.(interface{ Unwrap() []error })
	if joined == nil {
		return nil
	}
	var all []*FieldError
	for _, err := range joined.Unwrap() {
		if problem := new(FieldError); errors.As(err, &problem) {
			all = append(all, problem)
		}
	}
	return all
}

// DefaultPolicy returns the policy of a node without settings.
func DefaultPolicy() Policy {
	policy, _ := NewPolicy(Settings{})
	return policy
}

// NewPolicy returns the policy of the settings. The error joins a FieldError for each problem (EVI-4).
func NewPolicy(settings Settings) (Policy, error) {
	p := parser{}
	hard, isDefault := settings.hard()
	policy := Policy{
		MaxPodGracePeriod: time.Duration(settings.MaxPodGracePeriod) * time.Second, TransitionPeriod: settings.PressureTransitionPeriod,
	}
	if policy.TransitionPeriod == 0 {
		policy.TransitionPeriod = defaultTransitionPeriod
	}
	if policy.TransitionPeriod < 0 {
		p.fail(fieldTransition, "invalid value %v: must not be negative", policy.TransitionPeriod)
	}
	hardThresholds, softThresholds := p.thresholds(fieldHard, hard), p.thresholds(fieldSoft, settings.Soft)
	if _, found := hard[string(PIDAvailable)]; isDefault && !found {
		value, _ := parseShare(defaultPIDs)
		hardThresholds = append(hardThresholds, Threshold{Signal: PIDAvailable, Value: Amount{Share: value}, ReportOnly: true})
	}
	p.addGracePeriods(softThresholds, settings.SoftGracePeriod)
	policy.Thresholds = append(hardThresholds, softThresholds...)
	p.addMinimumReclaims(policy.Thresholds, settings.MinimumReclaim)
	if !settings.IgnoreAllocatable {
		policy.addAllocatable()
	}
	return policy, errors.Join(p.errs...)
}

// hard returns the hard thresholds, and whether the default ones are among them.
func (s *Settings) hard() (thresholds map[string]string, hasDefaults bool) {
	if s.Hard == nil {
		return DefaultHard(), true
	}
	if !s.MergeDefaults {
		return s.Hard, false
	}
	merged := DefaultHard()
	maps.Copy(merged, s.Hard)
	return merged, true
}

// addAllocatable copies each hard threshold of memory to that of all pods together, so that a pod is evicted before the kernel kills a
// process at the limit of kubepods (EVI-6).
func (p *Policy) addAllocatable() {
	for _, threshold := range slices.Clone(p.Thresholds) {
		if threshold.Signal == MemoryAvailable && threshold.isHard() {
			threshold.Signal = AllocatableMemoryAvailable
			p.Thresholds = append(p.Thresholds, threshold)
		}
	}
}

// KeptFree returns the memory and the ephemeral storage that hard thresholds keep free of a capacity. Pods cannot have them.
func (p *Policy) KeptFree(capacity v1.ResourceList) v1.ResourceList {
	kept := v1.ResourceList{}
	for i := range p.Thresholds {
		t := &p.Thresholds[i]
		info, _, _ := t.Signal.info()
		if total, found := capacity[info.resource]; found && !t.IsSoft && (t.Signal == MemoryAvailable || t.Signal == NodeFSAvailable) {
			kept[info.resource] = t.Value.of(total.Value())
		}
	}
	return kept
}

// The names of settings in KubeletConfiguration.
const (
	fieldHard        = "evictionHard"
	fieldSoft        = "evictionSoft"
	fieldGracePeriod = "evictionSoftGracePeriod"
	fieldReclaim     = "evictionMinimumReclaim"
	fieldTransition  = "evictionPressureTransitionPeriod"
)

// parser collects problems.
type parser struct{ errs []error }

func (p *parser) fail(field, format string, args ...any) {
	p.errs = append(p.errs, &FieldError{field, fmt.Sprintf(format, args...)})
}

// signal returns the signal of an entry, and false if it cannot be configured.
func (p *parser) signal(field, name string) (Signal, bool) {
	info, _, found := Signal(name).info()
	switch {
	case !found:
		var known []string
		for _, other := range signals {
			if other.derivedFrom == "" {
				known = append(known, string(other.signal))
			}
		}
		p.fail(field+"."+name, "unknown signal: must be one of %s", strings.Join(known, ", "))
	case info.derivedFrom != "":
		p.fail(field+"."+name, "cannot be set: it has the threshold of %s", info.derivedFrom)
	}
	return Signal(name), found && info.derivedFrom == ""
}

// thresholds returns the thresholds in the order of their names. 0% and 100% switch a signal off.
func (p *parser) thresholds(field string, values map[string]string) []Threshold {
	var all []Threshold
	for _, name := range slices.Sorted(maps.Keys(values)) {
		signal, valid := p.signal(field, name)
		text := values[name]
		if !valid || text == "0%" || text == "100%" {
			continue
		}
		amount, err := parseAmount(text)
		switch {
		case err != nil:
			p.fail(field+"."+name, "invalid value %q: %v", text, err)
		case amount.Quantity != nil && amount.Quantity.Sign() <= 0:
			p.fail(field+"."+name, "invalid value %q: must be positive", text)
		case amount.Share < 0 || amount.Share > 1:
			p.fail(field+"."+name, "invalid value %q: must be between 0%% and 100%%", text)
		default:
			all = append(all, Threshold{Signal: signal, Value: amount, IsSoft: field == fieldSoft})
		}
	}
	return all
}

func (p *parser) addGracePeriods(soft []Threshold, values map[string]string) {
	periods := map[Signal]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		signal, valid := p.signal(fieldGracePeriod, name)
		period, err := time.ParseDuration(values[name])
		switch {
		case !valid:
		case err != nil:
			p.fail(fieldGracePeriod+"."+name, "invalid value %q: must be a duration like 1m30s", values[name])
		case period < 0:
			p.fail(fieldGracePeriod+"."+name, "invalid value %q: must not be negative", values[name])
		}
		periods[signal] = period
	}
	for i := range soft {
		period, found := periods[soft[i].Signal]
		if !found {
			p.fail(fieldSoft+"."+string(soft[i].Signal), "has no grace period in "+fieldGracePeriod)
		}
		soft[i].GracePeriod = period
	}
}

func (p *parser) addMinimumReclaims(all []Threshold, values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		signal, valid := p.signal(fieldReclaim, name)
		amount, err := parseAmount(values[name])
		switch {
		case !valid:
			continue
		case err != nil:
			p.fail(fieldReclaim+"."+name, "invalid value %q: %v", values[name], err)
			continue
		case amount.Quantity == nil && amount.Share <= 0, amount.Quantity != nil && amount.Quantity.Sign() < 0:
			p.fail(fieldReclaim+"."+name, "invalid value %q: must be positive", values[name])
			continue
		}
		for i := range all {
			if all[i].Signal == signal {
				all[i].MinReclaim = &amount
			}
		}
	}
}

func parseAmount(text string) (Amount, error) {
	if strings.HasSuffix(text, "%") {
		share, err := parseShare(text)
		return Amount{Share: share}, err
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return Amount{}, errors.New("must be a quantity like 100Mi, or a percentage like 10%")
	}
	return Amount{Quantity: &quantity}, nil
}

func parseShare(text string) (float32, error) {
	percent, err := strconv.ParseFloat(strings.TrimRight(text, "%"), 32)
	if err != nil || percent != percent { // NaN is not a number
		return 0, errors.New("must be a percentage like 10%")
	}
	return float32(percent) / 100, nil
}
