package stats

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/load"
)

const (
	archiveName    = "day"
	archiveVersion = 1
	// savePeriod is how often the archive is saved. A crash loses what was measured since.
	savePeriod = 5 * time.Minute
	// maxArchive bounds the size of an archive that is read.
	maxArchive = 16 << 20
	// levelMaxAge is the age from which the level of an earlier agent says nothing about the present.
	levelMaxAge = 10 * time.Minute
)

// archive keeps the loads of the last 24 hours over restarts.
type archive struct {
	collector *Collector
	dir       *checkpoint.Dir
	failing   bool
}

// openArchive reads what an earlier agent saved. It returns nil if there is no directory or it cannot be used: the loads are then kept
// in memory only.
func (c *Collector) openArchive() *archive {
	if c.config.Dir == "" {
		return nil
	}
	dir, err := checkpoint.Open(c.config.Dir, checkpoint.Options{MaxSize: maxArchive})
	if err != nil {
		c.config.Logger.Warn("Failed to open archive of the load, keeping it in memory", "err", err)
		return nil
	}
	a := &archive{collector: c, dir: dir}
	switch err := a.load(time.Now()); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.config.Logger.Warn("Failed to read archive of the load, starting anew", "err", err)
	}
	return a
}

func (a *archive) load(now time.Time) error {
	payload, version, err := a.dir.Load(archiveName)
	if err != nil {
		return err
	}
	day, level, err := decodeArchive(payload, version)
	if err != nil {
		return a.dir.Quarantine(archiveName, version, payload, fmt.Errorf("%w: %w", checkpoint.ErrCorrupt, err))
	}
	c := a.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	c.day = day
	if age := now.Sub(level.At); age >= 0 && age < levelMaxAge {
		c.node.RestoreLevel(level.Level, level.Since.Sub(c.startedAt.Round(0)))
	}
	return nil
}

func decodeArchive(payload []byte, version int) (*load.Day, load.SavedLevel, error) {
	if version != archiveVersion {
		return nil, load.SavedLevel{}, fmt.Errorf("version %d, want %d", version, archiveVersion)
	}
	reader, err := gzip.NewReader(bytes.NewReader(payload))
	if err != nil {
		return nil, load.SavedLevel{}, err
	}
	encoded, err := io.ReadAll(io.LimitReader(reader, maxArchive))
	if err != nil {
		return nil, load.SavedLevel{}, err
	}
	return load.DecodeDay(encoded)
}

// run saves until ctx ends, and once more then.
func (a *archive) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(jitter(savePeriod)):
		}
		a.save()
	}
}

func (a *archive) save() {
	c := a.collector
	c.mu.Lock()
	node := c.node.Load(c.now())
	encoded := c.day.Encode(load.SavedLevel{Level: node.Level, Since: c.startedAt.Add(node.LevelSince).Round(0), At: time.Now().Round(0)})
	c.mu.Unlock()
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	if err == nil {
		_, _ = writer.Write(encoded) // a bytes.Buffer never fails
		_ = writer.Close()
		err = a.dir.Save(archiveName, archiveVersion, compressed.Bytes())
	}
	if err != nil && !a.failing {
		c.config.Logger.Warn("Failed to save archive of the load, will retry", "err", err)
	}
	a.failing = err != nil
}

func (a *archive) close() {
	if err := a.dir.Close(); err != nil {
		a.collector.config.Logger.Warn("Failed to close archive of the load", "err", err)
	}
}
