// Package checkpoint keeps small state on disk through crashes: whole files that are there completely or not at all.
//
// A Dir is a folder of checkpoints, held by one process at a time. Save replaces a checkpoint, Load reads it back; a Store
// does both for a Go value as JSON. A checkpoint is a line that says what follows, and then the payload:
//
//	{"checkpoint":1,"name":"status","version":1,"length":24,"crc32c":"4f7a559f"}
//	{"pods":{"a":"Running"}}
//
// The line's "checkpoint" is the format of the file, "version" that of the payload, "crc32c" the sum of the line (with an
// empty sum) and the payload. `head -n 1 FILE` and `tail -n +2 FILE` show the two parts.
//
// What is promised:
//   - After a Save that returned nil, Load gives that payload, whatever crashed since: process, machine or power.
//   - After a Save that failed, Load gives the payload before it. The one exception is a folder that could not be synced:
//     then the new payload is in place, and a power cut may bring back the old one.
//   - A file that Save cannot have written is never returned as a payload. Load renames it to NAME.corrupt (-2 to -4 when
//     there are several) and says so in a *InvalidFileError; the caller decides how to go on without it (F18).
//   - An unchanged payload is not written again (SM-87).
//
// A Save that changes something costs two fsyncs whatever its size, so state of many pods belongs into one checkpoint, not
// into one each.
package checkpoint
