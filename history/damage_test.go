package history_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/heraldnode/herald/history"
)

// filledDisk returns a disk with sealed and plain segments, and the records on it.
func filledDisk(tb testing.TB) (*history.Disk, []history.Record, [][2]uint64) {
	tb.Helper()
	n, disk := newTestNode(tb, func(c *history.Config) { c.MaxDisk = 512 << 10 })
	for i := range 560 {
		n.set(fmt.Sprint("pod-", i%10), status(v1.PodRunning, waiting(fmt.Sprint("Reason", i*7919)), int32(i)))
		if i%50 == 0 {
			n.step(time.Second)
		}
	}
	n.step(time.Second)
	if err := n.log.SealAll(); err != nil {
		tb.Fatal(err)
	}
	if len(disk.Names(".gz")) < 2 || len(disk.Names(".log")) != 1 {
		tb.Fatalf("got files %v, want sealed segments and a plain one", disk.Names(""))
	}
	return disk, all(tb, n.log), n.log.Blocks()
}

// reopen opens a copy of the disk and returns its records, and how much damage was counted.
func reopen(tb testing.TB, disk *history.Disk) ([]history.Record, float64) {
	tb.Helper()
	registry := prometheus.NewRegistry()
	log := openOn(tb, disk, func(c *history.Config) { c.Metrics = registry })
	records := all(tb, log)
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	counted := 0.0
	for _, family := range families {
		if family.GetName() == "herald_history_corrupt_total" {
			counted += family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return records, counted
}

// lost returns the ranges of records that are not among records any more.
func lost(before []history.Record, after []history.Record, blocks [][2]uint64) [][2]uint64 {
	remaining := map[uint64]bool{}
	for _, record := range after {
		remaining[record.Seq] = true
	}
	var ranges [][2]uint64
	for _, record := range before {
		if remaining[record.Seq] {
			continue
		}
		for _, block := range blocks {
			if block[0] <= record.Seq && record.Seq <= block[1] && !slices.Contains(ranges, block) {
				ranges = append(ranges, block)
			}
		}
	}
	return ranges
}

func TestH5_BitFlip(t *testing.T) {
	disk, records, blocks := filledDisk(t)
	names := append(disk.Names(".gz"), disk.Names(".log")...)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "file")
		offset := rapid.IntRange(0, len(disk.Content(name))-1).Draw(rt, "offset")
		damaged := disk.Clone()
		content := bytes.Clone(disk.Content(name))
		content[offset] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		damaged.SetContent(name, content)
		after, counted := reopen(t, damaged)
		ranges := lost(records, after, blocks)
		// A damaged newline joins two lines.
		if limit := 2; len(ranges) > limit {
			rt.Errorf("a flipped bit cost %v, want at most a block or two lines", ranges)
		}
		if len(ranges) > 0 && counted == 0 {
			isTail := ranges[len(ranges)-1][1] >= records[len(records)-1].Seq-1 // counted as a torn tail
			if !isTail {
				rt.Errorf("the loss of %v was not counted", ranges)
			}
		}
	})
}

func TestH5_Truncation(t *testing.T) {
	disk, records, blocks := filledDisk(t)
	names := append(disk.Names(".gz"), disk.Names(".log")...)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "file")
		size := rapid.IntRange(0, len(disk.Content(name))-1).Draw(rt, "size")
		damaged := disk.Clone()
		damaged.SetContent(name, bytes.Clone(disk.Content(name)[:size]))
		after, _ := reopen(t, damaged)
		present := map[uint64]bool{}
		for _, record := range after {
			present[record.Seq] = true
		}
		// What precedes the end stays, up to the last block or line.
		first := firstSeq(rt, name)
		var kept, gone int
		for _, record := range records {
			isAffected := record.Seq >= first && isSameFile(disk, record.Seq, name)
			switch {
			case !isAffected && !present[record.Seq]:
				rt.Errorf("record %d of another file is lost", record.Seq)
			case isAffected && present[record.Seq]:
				kept++
				if gone > 0 {
					rt.Errorf("record %d is there, but not one before it", record.Seq)
				}
			case isAffected:
				gone++
			}
		}
		share := float64(kept) / float64(kept+gone)
		if blockShare := 1 / float64(max(1, len(blocksOf(blocks, records, disk, name)))); share < float64(size)/float64(len(disk.Content(name)))-2*blockShare-0.1 {
			rt.Errorf("%s cut to %d of %d bytes: %d of %d records are left", name, size, len(disk.Content(name)), kept, kept+gone)
		}
	})
}

func firstSeq(t *rapid.T, name string) (first uint64) {
	if _, err := fmt.Sscanf(name, "%d.log", &first); err != nil {
		t.Fatal(err)
	}
	return first
}

// isSameFile reports whether the record is in the file, by the names of the files.
func isSameFile(disk *history.Disk, seq uint64, name string) bool {
	owner := ""
	for _, other := range append(disk.Names(".gz"), disk.Names(".log")...) {
		var first uint64
		if _, err := fmt.Sscanf(other, "%d.log", &first); err == nil && first <= seq && other[:20] > owner {
			owner = other[:20]
		}
	}
	return owner == name[:20]
}

func blocksOf(blocks [][2]uint64, records []history.Record, disk *history.Disk, name string) (found [][2]uint64) {
	for _, block := range blocks {
		if isSameFile(disk, block[0], name) && block[0] <= records[len(records)-1].Seq {
			found = append(found, block)
		}
	}
	return found
}

func TestOpen_ForeignFiles(t *testing.T) {
	disk, records, _ := filledDisk(t)
	name := disk.Names(".log")[0]
	disk.SetContent("00000000000000099999.log", []byte("not a segment\n"))
	disk.SetContent("00000000000000088888.log.gz.tmp", []byte("unfinished"))
	disk.SetContent("notes.txt", []byte("mine"))
	after, counted := reopen(t, disk)
	if len(after) != len(records) || counted != 1 {
		t.Errorf("got %d records and %v damaged, want %d and 1", len(after), counted, len(records))
	}
	if got := disk.Names(".corrupt"); len(got) != 1 || len(disk.Names(".tmp")) != 0 || len(disk.Names("notes.txt")) != 1 {
		t.Errorf("got files %v, want the damaged one renamed and the temporary one removed", disk.Names(""))
	}
	// A newer format is left alone, and the sequence goes on behind it.
	newer := bytes.Replace(disk.Content(name), []byte(`"format":1`), []byte(`"format":2`), 1)
	line, rest, _ := bytes.Cut(newer, []byte("\n"))
	disk.SetContent(name, append(history.Checked(line[9:]), rest...))
	log := openOn(t, disk, nil)
	n := newNode()
	n.restart(log)
	n.step(0)
	last := all(t, log)
	if got := last[len(last)-1].Seq; got < records[len(records)-1].Seq || !bytes.Equal(disk.Content(name), append(history.Checked(line[9:]), rest...)) {
		t.Errorf("got sequence number %d, want one after %d, and the newer segment unchanged", got, records[len(records)-1].Seq)
	}
}

func FuzzOpen(f *testing.F) {
	disk, _, _ := filledDisk(f)
	f.Add(disk.Content(disk.Names(".log")[0]), false)
	f.Add(disk.Content(disk.Names(".gz")[0]), true)
	f.Add([]byte("00000000 {}\n"), false)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, content []byte, isSealed bool) {
		name := "00000000000000000001.log"
		if isSealed {
			name += ".gz"
		}
		disk := history.NewDisk()
		disk.SetContent(name, content)
		n := newNode()
		n.restart(openOn(t, disk, nil))
		n.set("web", status(v1.PodRunning, running(), 0))
		n.step(2 * time.Second)
		if _, err := n.log.Query(t.Context(), history.Query{Namespace: "default", Name: "web"}); err != nil {
			t.Error(err)
		}
		records := all(t, n.log)
		if len(records) < 2 || records[len(records)-1].UID != "web" {
			t.Errorf("got %d records, want at least those of this run", len(records))
		}
		if err := n.log.SealAll(); err != nil {
			t.Error(err)
		}
	})
}
