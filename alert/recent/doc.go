// Package recent remembers when things happened to objects in the last 24 hours, and counts them in windows of time: restarts and ends of
// containers, changes of conditions of pods, events of the node. Objects have names, not UIDs, so that a pod that is replaced under its
// name keeps its counts. It is pure.
package recent
