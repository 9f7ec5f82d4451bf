package config

import "github.com/heraldnode/herald/eviction"

func (c *Config) evictionSettings() eviction.Settings {
	return eviction.Settings{
		Hard: c.EvictionHard, MergeDefaults: c.MergeDefaultEvictionSettings, Soft: c.EvictionSoft, SoftGracePeriod: c.EvictionSoftGracePeriod,
		MinimumReclaim: c.EvictionMinimumReclaim, MaxPodGracePeriod: c.EvictionMaxPodGracePeriod,
		PressureTransitionPeriod: c.EvictionPressureTransitionPeriod,
	}
}

func (c *Config) validateEviction(v *validator) {
	_, err := eviction.NewPolicy(c.evictionSettings())
	for _, problem := range eviction.FieldErrors(err) {
		v.rejectIf(true, problem.Field, "%s", problem.Message)
	}
}
