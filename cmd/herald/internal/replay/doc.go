// Package replay runs rules over the history of a node: it rebuilds the statuses of pods from the recorded changes and evaluates the rules
// in virtual time, so that they can be judged by what really happened.
package replay
