// Package history records every accepted version of every pod's status, and every change of the node, in bounded files that
// survive kill -9, power loss, full and damaged disks, upgrades of the agent and the deletion of the pod.
//
// A [Log] takes versions from the status manager ([Log.Accepted]) without blocking it, and writes them in the background:
//
//	status manager ── Accepted ──> journal ──> writer: changes, cause, folding ──> active segment ── sealing ──> .log.gz
//	                               in memory   one write per batch                 one line per record, with a checksum
//
// What is promised:
//
//   - Every version is in one record, or in the range of one folded record. If versions are missing before a record, it says so.
//   - Per pod, records are in the order of the versions, whatever the clock does.
//   - A crash costs at most the last milliseconds, a power failure at most Config.Sync. What a reader saw survives a crash.
//   - Any damage of a file costs at most the line or, in a sealed segment, the block of 64 KiB that it hits.
//   - Files never exceed Config.MaxDisk by more than one segment. While the disk fails, records wait in memory, within one
//     segment; then the oldest are dropped and counted.
//
// docs/history.md describes the files.
package history
