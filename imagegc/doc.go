// Package imagegc decides which images a node removes, and when.
//
// A pass goes like this; the caller lists, measures and removes:
//
//	records = records.Update(images, now)
//	candidates := records.Candidates(images)
//	remove policy.Expired(candidates, now)           those that nobody has used for too long
//	goal, isExceeded := policy.Goal(usage)           the file system is too full:
//	remove policy.Removable(candidates, now)         one after the other, until goal.IsReached(usage)
//
// # Differences from the kubelet
//
//   - The age of an image that was never used counts from its detection, and the minimum age protects it from removal for its age too.
//   - Ages count across restarts if the caller keeps the records.
//   - Inodes count like bytes.
package imagegc
