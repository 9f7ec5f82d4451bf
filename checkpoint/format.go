package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// Errors of a checkpoint. Each error of Load about a file's content wraps exactly one of the first four in an *InvalidFileError.
// A checkpoint that does not exist is fs.ErrNotExist.
var (
	ErrCorrupt  = errors.New("is corrupt")
	ErrForeign  = errors.New("is not this checkpoint")
	ErrVersion  = errors.New("has an unsupported version")
	ErrTooLarge = errors.New("is too large")

	ErrInvalidName    = errors.New("invalid name: want at most 100 letters, digits, - and _, starting with a letter or digit")
	ErrInvalidVersion = errors.New("invalid payload version: want at least 1")
)

// InvalidFileError reports a checkpoint that cannot be used, and where it was moved so that nothing overwrites it.
type InvalidFileError struct {
	Path    string // path of the checkpoint
	Reason  error  // wraps one of ErrCorrupt, ErrForeign, ErrVersion, ErrTooLarge
	MovedTo string // new path of the file; empty if it could not be moved
	MoveErr error  // why the file could not be moved
}

// Error names the checkpoint, the reason and the new path.
func (e *InvalidFileError) Error() string {
	if e.MoveErr != nil {
		return fmt.Sprintf("checkpoint %s %v, and cannot be moved: %v", e.Path, e.Reason, e.MoveErr)
	}
	return fmt.Sprintf("checkpoint %s %v; moved to %s", e.Path, e.Reason, e.MovedTo)
}

// Unwrap returns the reason and the error of the move.
func (e *InvalidFileError) Unwrap() []error {
	if e.MoveErr != nil {
		return []error{e.Reason, e.MoveErr}
	}
	return []error{e.Reason}
}

func isInvalidContent(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrForeign) || errors.Is(err, ErrVersion) || errors.Is(err, ErrTooLarge)
}

const (
	format    = 1
	magic     = `{"checkpoint":` // start of the header in every format
	maxHeader = 512
)

// header is the first line of a file. Later formats must keep the first field, so that this version can recognize them.
type header struct {
	Format  int    `json:"checkpoint"`
	Name    string `json:"name"`
	Version int    `json:"version"`
	Length  int    `json:"length"`
	Sum     string `json:"crc32c"`
}

// line returns the header as it is written to the file.
func (h header) line() []byte {
	line, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("checkpoint: marshal header of strings and numbers: %v", err))
	}
	return append(line, '\n')
}

// encodeHeader returns the line that precedes the payload.
func encodeHeader(name string, version int, payload []byte) []byte {
	h := header{Format: format, Name: name, Version: version, Length: len(payload)}
	table := crc32.MakeTable(crc32.Castagnoli)
	h.Sum = fmt.Sprintf("%08x", crc32.Update(crc32.Checksum(h.line(), table), table, payload))
	return h.line()
}

// decode splits a file into its parts. It accepts exactly the output of encodeHeader followed by the payload. The payload is a
// part of data, not a copy.
func decode(name string, data []byte) (payload []byte, version int, err error) {
	start := data[:min(len(data), maxHeader)]
	if prefix := min(len(start), len(magic)); string(start[:prefix]) != magic[:prefix] {
		return nil, 0, fmt.Errorf("%w: it does not start with %s", ErrForeign, magic)
	}
	end := bytes.IndexByte(start, '\n') + 1
	if end == 0 {
		return nil, 0, fmt.Errorf("%w: the header is incomplete; the file has %d bytes", ErrCorrupt, len(data))
	}
	h, err := decodeHeader(data[:end])
	if err != nil {
		return nil, 0, err
	}
	payload = data[end:]
	if len(payload) != h.Length {
		return nil, 0, fmt.Errorf("%w: the payload has %d bytes of %d", ErrCorrupt, len(payload), h.Length)
	}
	if h.Version < 1 {
		return nil, 0, fmt.Errorf("%w: the payload version is %d", ErrCorrupt, h.Version)
	}
	if !bytes.Equal(encodeHeader(h.Name, h.Version, payload), data[:end]) {
		return nil, 0, fmt.Errorf("%w: the checksum does not match", ErrCorrupt)
	}
	if h.Name != name {
		return nil, 0, fmt.Errorf("%w: it is checkpoint %q", ErrForeign, h.Name)
	}
	return payload, h.Version, nil
}

func decodeHeader(line []byte) (header, error) {
	var prefix struct {
		Format int `json:"checkpoint"`
	}
	if err := json.Unmarshal(line, &prefix); err != nil {
		return header{}, fmt.Errorf("%w: decode header: %w", ErrCorrupt, err)
	}
	if prefix.Format != format {
		return header{}, fmt.Errorf("%w: the format is %d, this program reads %d", ErrVersion, prefix.Format, format)
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, fmt.Errorf("%w: decode header: %w", ErrCorrupt, err)
	}
	return h, nil
}
