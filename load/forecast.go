package load

import "time"

const (
	// forecastStep is the resolution of a Forecast, forecastSteps covers the longer of its two windows.
	forecastStep  = 5 * time.Minute
	forecastSteps = 72 // 6 hours
	recentSteps   = 3  // 15 minutes
)

// Forecast estimates when a file system is full. It is not safe for concurrent use. The zero value is empty.
type Forecast struct {
	used  [forecastSteps + 1]float64
	steps int // number of the newest step plus one; 0 if there is none
	first int // number of the oldest step that was sampled without a gap
}

// Add adds the used bytes at the given time. Of several samples of one step, the first counts; a gap starts anew.
func (f *Forecast) Add(at time.Duration, used Value) {
	number, known := used.Get()
	step := int(at / forecastStep)
	if !known || at < 0 || step+1 <= f.steps {
		return
	}
	if step > f.steps || f.steps == 0 {
		f.first = step
	}
	f.used[step%len(f.used)] = number
	f.steps = step + 1
	f.first = max(f.first, step-forecastSteps)
}

// HoursToFull returns the hours until nothing is available, by the slower of the growth of the last 15 minutes and of the last 6 hours: a
// burst is no trend. It is unknown while there is less than 15 minutes of samples, and while the file system does not grow.
func (f *Forecast) HoursToFull(available Value) Value {
	free, known := available.Get()
	newest := f.steps - 1
	if !known || newest-f.first < recentSteps {
		return Value{}
	}
	slope := min(f.slope(newest-recentSteps), f.slope(f.first))
	if slope <= 0 {
		return Value{}
	}
	return Known(max(free, 0) / slope)
}

// slope returns the growth per hour since a step.
func (f *Forecast) slope(step int) float64 {
	newest := f.steps - 1
	grown := f.used[newest%len(f.used)] - f.used[step%len(f.used)]
	return grown / (time.Duration(newest-step) * forecastStep).Hours()
}
