// Package load computes the load of a node and its pods from samples: windows of 1, 5 and 15 minutes, the saturation of the node with
// the resource that causes it, levels with hysteresis, the time until a file system is full, and tracks of the last 24 hours. What was
// not measured, or not recently, is unknown and never zero. Pure: times are arguments. They are durations since the start of the agent,
// so that a clock that is set back changes nothing; only tracks, which outlive the agent, have times of the wall clock.
package load
