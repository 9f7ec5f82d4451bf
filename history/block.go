package history

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// blockSize is the amount of uncompressed lines that are compressed and indexed together. It is what damage to a sealed
// segment may cost.
const blockSize = 64 << 10

// block is the index entry of some consecutive lines of a segment.
type block struct {
	// offset and length are the position in the file: of the lines, or of the gzip member in a sealed segment.
	offset, length int64
	firstSeq       uint64
	lastSeq        uint64
	// minTime and maxTime are in milliseconds since the epoch. The clock may be set back within a block.
	minTime, maxTime int64
	// keys are the sorted hashes of the pods that the block has something about: by namespace and name, and by UID.
	keys []uint32
}

// podKey returns the hash of a pod's name. Different pods may have the same one.
func podKey[T ~string | ~[]byte](namespace, name T) uint32 {
	return fnv(fnv(fnv(fnvOffset, namespace), "/"), name)
}

func uidKey[T ~string | ~[]byte](uid T) uint32 { return fnv(fnvOffset, uid) }

const fnvOffset, fnvPrime = 2166136261, 16777619 // FNV-1a

func fnv[T ~string | ~[]byte](hash uint32, text T) uint32 {
	for i := range len(text) {
		hash = (hash ^ uint32(text[i])) * fnvPrime
	}
	return hash
}

func (b *block) hasKey(key uint32) bool {
	_, found := slices.BinarySearch(b.keys, key)
	return found
}

// lineKeys are the index data of one line.
type lineKeys struct {
	seq  uint64
	time int64
	keys []uint32
}

// blockIndex builds the blocks of a segment from its lines.
type blockIndex struct {
	blocks []block             // complete blocks
	open   block               // the last one
	keys   map[uint32]struct{} // of the open block
}

// add adds a line of the given length at the end.
func (x *blockIndex) add(line lineKeys, length int) {
	if x.keys == nil {
		x.keys = map[uint32]struct{}{}
	}
	if x.open.length > 0 && x.open.length+int64(length) > blockSize {
		x.close()
	}
	b := &x.open
	if b.firstSeq == 0 {
		b.firstSeq, b.minTime, b.maxTime = line.seq, line.time, line.time
	}
	if line.seq != 0 {
		b.lastSeq, b.minTime, b.maxTime = line.seq, min(b.minTime, line.time), max(b.maxTime, line.time)
	}
	b.length += int64(length)
	for _, key := range line.keys {
		x.keys[key] = struct{}{}
	}
}

func (x *blockIndex) close() {
	if x.open.length == 0 {
		return
	}
	x.open.keys = slices.Sorted(maps.Keys(x.keys))
	x.blocks = append(x.blocks, x.open)
	x.open = block{offset: x.open.offset + x.open.length}
	clear(x.keys)
}

// snapshot returns the blocks with the open one, for use without a lock.
func (x *blockIndex) snapshot() []block {
	blocks := slices.Clip(x.blocks)
	if x.open.length > 0 {
		open := x.open
		open.keys = slices.Sorted(maps.Keys(x.keys))
		blocks = append(blocks, open)
	}
	return blocks
}

// indexLine is the JSON of the index of a sealed segment.
type indexLine struct {
	Kind   string       `json:"kind"`
	Blocks []indexBlock `json:"blocks"`
	// LogBytes is the size of the log records before compression, of LineBytes in total.
	LogBytes  int64 `json:"logBytes"`
	LineBytes int64 `json:"lineBytes"`
}

type indexBlock struct {
	Offset int64     `json:"offset"`
	Length int64     `json:"length"`
	Seq    [2]uint64 `json:"seq"`
	Time   [2]int64  `json:"time"`
	Keys   string    `json:"keys"` // little endian, in base64
}

const kindIndex = "index"

func newIndexLine(blocks []block) indexLine {
	line := indexLine{Kind: kindIndex}
	for _, b := range blocks {
		keys := make([]byte, 0, 4*len(b.keys))
		for _, key := range b.keys {
			keys = binary.LittleEndian.AppendUint32(keys, key)
		}
		line.Blocks = append(line.Blocks, indexBlock{
			Offset: b.offset, Length: b.length, Seq: [2]uint64{b.firstSeq, b.lastSeq}, Time: [2]int64{b.minTime, b.maxTime},
			Keys: base64.StdEncoding.EncodeToString(keys),
		})
	}
	return line
}

var errIndex = errors.New("invalid index")

// decodeIndex decodes an index whose blocks must lie within the first size bytes of the file.
func decodeIndex(payload []byte, size int64) (indexLine, []block, error) {
	var line indexLine
	if err := json.Unmarshal(payload, &line); err != nil {
		return indexLine{}, nil, fmt.Errorf("%w: %w", errIndex, err)
	}
	if line.Kind != kindIndex {
		return indexLine{}, nil, errIndex
	}
	blocks := make([]block, 0, len(line.Blocks))
	for i := range line.Blocks {
		b := &line.Blocks[i]
		keys, err := base64.StdEncoding.DecodeString(b.Keys)
		if err != nil || len(keys)%4 != 0 || b.Offset < 0 || b.Length < 0 || b.Length > maxMember || b.Offset > size-b.Length {
			return indexLine{}, nil, errIndex
		}
		decoded := block{
			offset: b.Offset, length: b.Length, firstSeq: b.Seq[0], lastSeq: b.Seq[1], minTime: b.Time[0], maxTime: b.Time[1],
			keys: make([]uint32, 0, len(keys)/4),
		}
		for j := 0; j < len(keys); j += 4 {
			decoded.keys = append(decoded.keys, binary.LittleEndian.Uint32(keys[j:]))
		}
		blocks = append(blocks, decoded)
	}
	return line, blocks, nil
}

// forEachLine calls visit for each line with a valid checksum, and returns the number of other lines. Text after the last
// newline counts as a line.
func forEachLine(lines []byte, visit func(payload, line []byte)) (bad int) {
	for len(lines) > 0 {
		line, rest, found := bytes.Cut(lines, []byte{'\n'})
		payload, ok := parseLine(line)
		switch {
		case ok && found:
			visit(payload, lines[:len(line)+1])
		default:
			bad++
		}
		lines = rest
	}
	return bad
}
