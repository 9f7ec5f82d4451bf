// Package ruletest runs alert rules over timelines: what happens to pods and the node at which time, and which alerts are expected when.
// Statuses, changes and views are made by the packages that the agent uses, and time is virtual, so that a test sees what the rules would
// see, days within milliseconds. docs/alerts.md describes the files.
package ruletest
