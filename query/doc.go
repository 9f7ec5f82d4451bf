// Package query selects pods and pages of the query API: label and field selectors as kubectl has them, expressions, cursors and times.
// Pure: the time is an argument.
package query
