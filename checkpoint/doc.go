// Package checkpoint stores small state in files that survive crashes: a file is written completely or not at all.
//
// A Dir is a directory of checkpoints that one process at a time may open. Save replaces a checkpoint, and Load reads it. A
// Store does both for a Go value as JSON. A checkpoint file is a header line followed by the payload:
//
//	{"checkpoint":1,"name":"status","version":1,"length":24,"crc32c":"4f7a559f"}
//	{"pods":{"a":"Running"}}
//
// In the header, "checkpoint" is the version of the file format, "version" that of the payload, and "crc32c" the checksum of
// the header (with an empty checksum) and the payload. `head -n 1 FILE` and `tail -n +2 FILE` print the two parts.
//
// Guarantees:
//   - After a Save that returned nil, Load returns that payload, whatever crashed since: process, machine or power.
//   - After a Save that failed, Load returns the previous payload. The only exception is a directory that could not be synced:
//     the new payload is in place, and a power failure may restore the old one.
//   - Load never returns the content of a file that Save did not write. It renames the file to NAME.corrupt (-2 to -4 if there
//     are several) and returns an *InvalidFileError; the caller decides how to continue without it (F18).
//   - An unchanged payload is not written again (SM-87).
//
// A Save that changes a file costs two fsyncs, whatever its size. Store the state of many pods in one checkpoint, not in one
// each.
//
// A Log appends changes to a checkpoint, for a value that is large and must be on disk after each of many small changes. A
// change is a line like the header and a payload, and costs one fsync:
//
//	{"change":1,"length":7,"crc32c":"aea83219"}
//	{"b":2}
package checkpoint
