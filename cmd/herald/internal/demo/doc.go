// Package demo shows the main job on any machine: an agent alone, plain processes as containers, a few pods that teach
// something, and the table of their statuses as they change.
package demo
