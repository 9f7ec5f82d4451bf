package load

import "time"

// Level is a step of the saturation. Unknown is the level before the first known saturation.
type Level string

// The levels, lowest first.
const (
	LevelUnknown   Level = "unknown"
	LevelIdle      Level = "idle"
	LevelNormal    Level = "normal"
	LevelBusy      Level = "busy"
	LevelSaturated Level = "saturated"
)

// Levels returns the known levels, lowest first.
func Levels() []Level { return []Level{LevelIdle, LevelNormal, LevelBusy, LevelSaturated} }

// levels has the lower edge of each level.
var levels = []struct {
	level Level
	from  float64
}{{LevelIdle, 0}, {LevelNormal, .05}, {LevelBusy, .50}, {LevelSaturated, .80}}

const (
	// riseHold is how long the saturation must be above the upper edge of a level before the level rises, fallHold how long it must
	// be below the lower edge minus hysteresis, or half of a lower edge that is smaller, before it falls.
	riseHold, fallHold = time.Minute, 5 * time.Minute
	hysteresis         = .10
)

// Leveler holds the level of a node. The zero value has the level LevelUnknown.
type Leveler struct {
	index int // in levels, plus one; 0 is unknown
	// above and below are since when the saturation is above or below the edges of the level. Negative if it is not.
	above, below time.Duration
}

// Level returns the level.
func (l Leveler) Level() Level {
	if l.index == 0 {
		return LevelUnknown
	}
	return levels[l.index-1].level
}

// Next returns the leveler after a saturation that was measured at the given time. The first known one sets the level at once; later
// ones change it only after their hold (L2). An unknown saturation changes nothing and ends a hold.
func (l Leveler) Next(at time.Duration, saturation Value) Leveler {
	value, known := saturation.Get()
	switch {
	case !known:
		l.above, l.below = -1, -1
		return l
	case l.index == 0:
		return Leveler{index: indexOf(value), above: -1, below: -1}
	}
	edge := levels[l.index-1].from
	l.above = since(l.above, at, l.index < len(levels) && value >= levels[l.index].from)
	l.below = since(l.below, at, l.index > 1 && value < max(edge-hysteresis, edge/2))
	switch {
	case l.above >= 0 && at-l.above >= riseHold, l.below >= 0 && at-l.below >= fallHold:
		return Leveler{index: indexOf(value), above: -1, below: -1}
	}
	return l
}

// since returns when a condition began to hold, -1 if it does not.
func since(began, at time.Duration, holds bool) time.Duration {
	switch {
	case !holds:
		return -1
	case began < 0:
		return at
	default:
		return began
	}
}

func indexOf(value float64) int {
	index := 0
	for i, level := range levels {
		if value >= level.from {
			index = i
		}
	}
	return index + 1
}
