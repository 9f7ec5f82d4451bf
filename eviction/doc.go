// Package eviction decides which pods must leave the node: those that use more of its disk than they may (EVI-24 to EVI-27), and, while
// the node is short of memory, disk space, inodes or process IDs, one pod after the other (EVI-1 to EVI-23).
//
// Package manager measures and acts. For pressure of the node, each pass has up to three steps:
//
//	measure ──> Policy.Observe ──> conditions of the Node
//	                 │
//	                 └─ Starved ──> reclaim, measure ──> Starved.IsResolved
//	                       │
//	                       └──> measure pods ──> Starved.Victim ──> evict
package eviction
