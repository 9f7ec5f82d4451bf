package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// A sealed segment is a chain of gzip members, so that zcat reads it: one for each block, one for the index, and an empty one
// that says where the index is. Each member has its size in an extra field of its header: a reader can step over a damaged one.
const (
	memberHeaderSize = 10 + 2 + 8 // gzip header, length of the extra field, the field
	memberTailSize   = 8          // checksum and size
	trailerSize      = 10 + 2 + 28 + 2 + 8
	maxMember        = 8 << 20  // bounds what is read for one member
	maxBlock         = 16 << 20 // bounds the content of one member

	// compressionLevel is the best trade: level 9 saves another 6 % and takes four times as long.
	compressionLevel = 6
)

// blockMagic starts each member except the trailer: gzip, deflate, with an extra field of 8 bytes named HB that has 4 bytes.
var blockMagic = []byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 8, 0, 'H', 'B', 4, 0}

// trailerMagic starts the trailer, whose extra field HI has the fields of trailer and their checksum.
var trailerMagic = []byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 28, 0, 'H', 'I', 24, 0}

// trailer is the content of the last member.
type trailer struct {
	indexOffset int64
	logBytes    int64
	format      uint32
}

// compressor builds gzip members. Its memory is reused.
type compressor struct {
	buffer  bytes.Buffer
	deflate *flate.Writer
}

// member returns a gzip member with the content. It is valid until the next call.
func (c *compressor) member(content []byte) ([]byte, error) {
	c.buffer.Reset()
	c.buffer.Write(blockMagic)
	c.buffer.Write(make([]byte, 4))
	if c.deflate == nil {
		var err error
		if c.deflate, err = flate.NewWriter(&c.buffer, compressionLevel); err != nil {
			return nil, err
		}
	} else {
		c.deflate.Reset(&c.buffer)
	}
	if _, err := c.deflate.Write(content); err != nil {
		return nil, err
	}
	if err := c.deflate.Close(); err != nil {
		return nil, err
	}
	tail := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(content))
	c.buffer.Write(binary.LittleEndian.AppendUint32(tail, uint32(len(content))))
	member := c.buffer.Bytes()
	binary.LittleEndian.PutUint32(member[len(blockMagic):], uint32(len(member)))
	return member, nil
}

func (t trailer) encode() []byte {
	member := binary.LittleEndian.AppendUint64(bytes.Clone(trailerMagic), uint64(t.indexOffset))
	member = binary.LittleEndian.AppendUint64(member, uint64(t.logBytes))
	member = binary.LittleEndian.AppendUint32(member, t.format)
	member = binary.LittleEndian.AppendUint32(member, crc32.Checksum(member[len(trailerMagic):], castagnoli))
	member = append(member, 3, 0)                 // an empty deflate stream
	return append(member, 0, 0, 0, 0, 0, 0, 0, 0) // its checksum and size
}

func readTrailer(f io.ReaderAt, size int64) (trailer, error) {
	member := make([]byte, trailerSize)
	if size < trailerSize {
		return trailer{}, errIndex
	}
	if _, err := f.ReadAt(member, size-trailerSize); err != nil && !errors.Is(err, io.EOF) {
		return trailer{}, err
	}
	field := member[len(trailerMagic):]
	if !bytes.HasPrefix(member, trailerMagic) || crc32.Checksum(field[:20], castagnoli) != binary.LittleEndian.Uint32(field[20:]) {
		return trailer{}, errIndex
	}
	t := trailer{
		indexOffset: int64(binary.LittleEndian.Uint64(field)), logBytes: int64(binary.LittleEndian.Uint64(field[8:])),
		format: binary.LittleEndian.Uint32(field[16:]),
	}
	if t.indexOffset < 0 || t.indexOffset > size-trailerSize || size-trailerSize-t.indexOffset > maxMember {
		return trailer{}, errIndex
	}
	return t, nil
}

// decompressor reads gzip members. Its memory is reused.
type decompressor struct {
	source  bytes.Reader
	gzip    gzip.Reader
	content []byte
}

// decompress returns the content of a member, which is valid until the next call. After an error, it returns what precedes the
// damage.
func (d *decompressor) decompress(member []byte) ([]byte, error) {
	d.source.Reset(member)
	if err := d.gzip.Reset(&d.source); err != nil {
		return nil, err
	}
	d.gzip.Multistream(false)
	if cap(d.content) == 0 {
		d.content = make([]byte, 0, blockSize+1) // nearly all blocks fit, with room to see the end
	}
	content := d.content[:0]
	for len(content) < maxBlock {
		if len(content) == cap(content) {
			content = slices.Grow(content, len(content))
		}
		n, err := d.gzip.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		d.content = content
		switch {
		case errors.Is(err, io.EOF):
			return content, nil
		case err != nil:
			return content, err
		}
	}
	return content[:maxBlock], nil
}

// decompressors and compressors are pools: each holds up to a megabyte, which would be garbage after each segment.
var (
	decompressors = sync.Pool{New: func() any { return new(decompressor) }}
	compressors   = sync.Pool{New: func() any { return new(compressor) }}
)

// decompress returns a copy of what decompressor.decompress returns.
func decompress(member []byte) ([]byte, error) {
	d := decompressors.Get().(*decompressor)
	defer decompressors.Put(d)
	content, err := d.decompress(member)
	return bytes.Clone(content), err
}

// sealedIndex is the content of a sealed segment's index.
type sealedIndex struct {
	blocks    []block
	logBytes  int64
	lineBytes int64
	// rebuilt is set if the stored index was damaged, and the blocks were found by a scan.
	rebuilt bool
}

// readIndex reads the index of a sealed segment. If it is damaged, it scans the members.
func readIndex(f io.ReaderAt, size int64) (*sealedIndex, error) {
	index, err := readStoredIndex(f, size)
	if err == nil {
		return index, nil
	}
	blocks, scanErr := scanMembers(f, size)
	if scanErr != nil {
		return nil, errors.Join(err, scanErr)
	}
	return &sealedIndex{blocks: blocks, rebuilt: true}, nil
}

func readStoredIndex(f io.ReaderAt, size int64) (*sealedIndex, error) {
	t, err := readTrailer(f, size)
	if err != nil {
		return nil, err
	}
	offset := t.indexOffset
	member := make([]byte, size-trailerSize-offset)
	if _, err := f.ReadAt(member, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	content, err := decompress(member)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errIndex, err)
	}
	payload, ok := parseLine(bytes.TrimSuffix(content, []byte{'\n'}))
	if !ok {
		return nil, errIndex
	}
	line, blocks, err := decodeIndex(payload, offset)
	if err != nil {
		return nil, err
	}
	return &sealedIndex{blocks: blocks, logBytes: line.LogBytes, lineBytes: line.LineBytes}, nil
}

// scanMembers finds the members of a segment without a usable index. It steps from member to member by their sizes, and after
// damage to the next bytes that look like a member.
func scanMembers(f io.ReaderAt, size int64) ([]block, error) {
	var blocks []block
	pods := podNames{}
	for offset := int64(0); offset < size; {
		length, err := memberLength(f, offset, size)
		if err != nil {
			return nil, err
		}
		if length == 0 {
			if offset, err = nextMember(f, offset+1, size); err != nil {
				return nil, err
			}
			continue
		}
		found, err := scanMember(f, offset, length, pods)
		if err != nil {
			return nil, err
		}
		if found.firstSeq != 0 {
			blocks = append(blocks, found)
		}
		if next, err := nextMember(f, offset+1, min(size, offset+length)); err == nil && next < offset+length {
			length = next - offset // the size itself is damaged: a member starts inside
		}
		offset += length
	}
	return blocks, nil
}

// memberLength returns the size of the member at offset, or 0 if there is none.
func memberLength(f io.ReaderAt, offset, size int64) (int64, error) {
	header := make([]byte, memberHeaderSize)
	if size-offset < memberHeaderSize+memberTailSize {
		return 0, nil
	}
	if _, err := f.ReadAt(header, offset); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if !bytes.HasPrefix(header, blockMagic) {
		return 0, nil
	}
	length := int64(binary.LittleEndian.Uint32(header[len(blockMagic):]))
	if length < memberHeaderSize+memberTailSize || length > maxMember {
		length = maxMember // damaged; the next member bounds it
	}
	return min(length, size-offset), nil
}

// nextMember returns the offset of the next bytes that look like a member, or size.
func nextMember(f io.ReaderAt, offset, size int64) (int64, error) {
	buffer := make([]byte, 64<<10)
	for offset < size {
		n, err := f.ReadAt(buffer[:min(int64(len(buffer)), size-offset)], offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.Index(buffer[:n], blockMagic); i >= 0 {
			return offset + int64(i), nil
		}
		if n < len(blockMagic) {
			break
		}
		offset += int64(n - len(blockMagic) + 1)
	}
	return size, nil
}

// scanMember returns the index entry of a member. Its lines may be damaged.
func scanMember(f io.ReaderAt, offset, length int64, pods podNames) (block, error) {
	member := make([]byte, length)
	if _, err := f.ReadAt(member, offset); err != nil && !errors.Is(err, io.EOF) {
		return block{}, err
	}
	content, _ := decompress(member) // a damaged block is counted when it is read
	var index blockIndex
	forEachLine(content, func(payload, line []byte) {
		index.add(pods.scan(payload), len(line))
	})
	blocks := index.snapshot()
	if len(blocks) == 0 {
		return block{}, nil
	}
	merged := blocks[0]
	for _, b := range blocks[1:] { // lines that are larger than a block
		merged.lastSeq, merged.minTime, merged.maxTime = b.lastSeq, min(merged.minTime, b.minTime), max(merged.maxTime, b.maxTime)
		merged.keys = mergeKeys(merged.keys, b.keys)
	}
	merged.offset, merged.length = offset, length
	return merged, nil
}

// seal writes the segment with these blocks as a chain of gzip members to a new file, and syncs it.
func seal(fs fileSystem, plain io.ReaderAt, blocks []block, name string, logBytes int64) (size int64, index *sealedIndex, err error) {
	out, err := fs.Open(name, true)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := out.Truncate(0); err != nil { // a leftover of a crash
		return 0, nil, err
	}
	compress := compressors.Get().(*compressor)
	defer compressors.Put(compress)
	write := func(content []byte) (block, error) {
		member, err := compress.member(content)
		if err == nil {
			_, err = out.WriteAt(member, size)
		}
		written := block{offset: size, length: int64(len(member))}
		size += written.length
		return written, err
	}
	index = &sealedIndex{logBytes: logBytes}
	buffer := make([]byte, blockSize)
	for _, b := range blocks {
		if int64(cap(buffer)) < b.length {
			buffer = make([]byte, b.length)
		}
		content := buffer[:b.length]
		if _, err := plain.ReadAt(content, b.offset); err != nil && !errors.Is(err, io.EOF) {
			return 0, nil, err
		}
		written, err := write(content)
		if err != nil {
			return 0, nil, err
		}
		index.lineBytes += b.length
		b.offset, b.length = written.offset, written.length
		index.blocks = append(index.blocks, b)
	}
	line := newIndexLine(index.blocks)
	line.LogBytes, line.LineBytes = index.logBytes, index.lineBytes
	text, err := json.Marshal(line)
	if err != nil {
		return 0, nil, err
	}
	indexAt, err := write(appendChecked(nil, func(payload []byte) []byte { return append(payload, text...) }))
	if err != nil {
		return 0, nil, err
	}
	end := trailer{indexOffset: indexAt.offset, logBytes: logBytes, format: formatVersion}
	if _, err := out.WriteAt(end.encode(), size); err != nil {
		return 0, nil, err
	}
	return size + trailerSize, index, out.Sync()
}
