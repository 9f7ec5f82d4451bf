// Package view has the objects that the query API returns: pods and the node with what only the node knows about them. Fields are only
// added, never renamed or removed; durations are integers in milliseconds whose names end in Ms; times are RFC 3339.
package view
