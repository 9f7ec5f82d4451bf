// Package load computes the load of a node and its pods from samples: windows of 1, 5 and 15 minutes, the saturation of the node with
// the resource that causes it, levels with hysteresis, and the time until a file system is full. What was not measured, or not
// recently, is unknown and never zero. Pure: times are arguments, as durations since the start of the agent, so that a clock that
// is set back changes nothing.
package load
