package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

const (
	format    = 1
	magic     = `{"checkpoint":` // how the first line of every format begins
	maxHeader = 512
)

// header is the first line of a file. Later formats keep its first field, so that this one can tell them from garbage.
type header struct {
	Format  int    `json:"checkpoint"`
	Name    string `json:"name"`
	Version int    `json:"version"`
	Length  int    `json:"length"`
	Sum     string `json:"crc32c"`
}

// line is the header as it stands in the file.
func (h header) line() []byte {
	line, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("checkpoint: a header of strings and numbers has no JSON: %v", err))
	}
	return append(line, '\n')
}

// encode is the line that goes before the payload.
func encode(name string, version int, payload []byte) []byte {
	h := header{Format: format, Name: name, Version: version, Length: len(payload)}
	table := crc32.MakeTable(crc32.Castagnoli)
	h.Sum = fmt.Sprintf("%08x", crc32.Update(crc32.Checksum(h.line(), table), table, payload))
	return h.line()
}

// decode takes apart what encode and the payload made, and refuses every other sequence of bytes. The payload is a part
// of data, not a copy.
func decode(name string, data []byte) (payload []byte, version int, err error) {
	first := data[:min(len(data), maxHeader)]
	if known := min(len(first), len(magic)); string(first[:known]) != magic[:known] {
		return nil, 0, fmt.Errorf("%w: it does not begin with %s", ErrForeign, magic)
	}
	end := bytes.IndexByte(first, '\n') + 1
	if end == 0 {
		return nil, 0, fmt.Errorf("%w: its first line does not end; the file has %d bytes", ErrCorrupt, len(data))
	}
	h, err := decodeHeader(data[:end])
	if err != nil {
		return nil, 0, err
	}
	payload = data[end:]
	if len(payload) != h.Length {
		return nil, 0, fmt.Errorf("%w: its payload has %d bytes of %d", ErrCorrupt, len(payload), h.Length)
	}
	if h.Version < 1 {
		return nil, 0, fmt.Errorf("%w: its payload's version is %d", ErrCorrupt, h.Version)
	}
	if !bytes.Equal(encode(h.Name, h.Version, payload), data[:end]) {
		return nil, 0, fmt.Errorf("%w: its checksum does not match", ErrCorrupt)
	}
	if h.Name != name {
		return nil, 0, fmt.Errorf("%w: it is the checkpoint %q", ErrForeign, h.Name)
	}
	return payload, h.Version, nil
}

func decodeHeader(line []byte) (header, error) {
	var opening struct {
		Format int `json:"checkpoint"`
	}
	if err := json.Unmarshal(line, &opening); err != nil {
		return header{}, fmt.Errorf("%w: its first line: %w", ErrCorrupt, err)
	}
	if opening.Format != format {
		return header{}, fmt.Errorf("%w: its format is %d, this program reads %d", ErrVersion, opening.Format, format)
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return header{}, fmt.Errorf("%w: its first line: %w", ErrCorrupt, err)
	}
	return h, nil
}
