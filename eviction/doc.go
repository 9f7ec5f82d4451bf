// Package eviction decides which pods must leave the node because they use more of its disk than they may (EVI-24 to EVI-27).
// Eviction under pressure of the whole node is not implemented.
package eviction
