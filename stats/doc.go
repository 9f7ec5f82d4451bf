// Package stats samples the use of resources of a node, its pods and their containers, and keeps the loads that package load computes from
// the samples. A runtime that hangs delays only the numbers: they turn unknown, never zero.
package stats
