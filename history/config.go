package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/transition"
)

// Config configures a Log.
type Config struct {
	// Dir is the directory of the files, which is created with mode 0700. Its parent must exist. Required unless MaxDisk is
	// negative.
	Dir string
	// MaxDisk bounds the size of all files in bytes. Defaults to 64 MiB. A negative size keeps the history in memory, within
	// 4 MiB.
	MaxDisk int64
	// MaxAge is how long records are kept. Defaults to 30 days.
	MaxAge time.Duration
	// Sync is how much a power failure may cost: records are synced to the disk this long after they were written. The end of a
	// pod and a start or stop of the agent are synced at once. Defaults to 1s.
	Sync time.Duration

	// ReadLog returns the last lines of the log of one instance of a container. Nil attaches no lines.
	ReadLog func(ctx context.Context, request LogRequest) (string, error)
	// LogLines and LogBytes bound the lines that are attached to the end of a failed container. They default to 50 and 8 KiB;
	// negative LogLines attach none.
	LogLines, LogBytes int
	// MemoryAvailable returns the node's available memory in bytes, or 0 if it is not known. Defaults to none.
	MemoryAvailable func() int64

	// OnNodeChange is called with the changes of the node that the history itself notices: the clock was set, the machine was booted.
	// It must not block. Defaults to none.
	OnNodeChange func(change transition.Change, at time.Time)

	// AgentVersion is recorded at each start.
	AgentVersion string
	// BootID identifies the boot of the machine. A start after a reboot is recorded. Empty if it is not known.
	BootID string
	// Logger receives log messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers the metrics. Defaults to none.
	Metrics prometheus.Registerer
}

// LogRequest names an instance of a container and how much of its log to read.
type LogRequest struct {
	Pod       *v1.Pod
	Container string
	// Attempt is the restart count of the instance.
	Attempt      int32
	Lines, Bytes int
}

const (
	defaultMaxDisk = 64 << 20
	memoryMaxDisk  = 4 << 20
	minMaxDisk     = 512 << 10
	maxSegmentSize = 4 << 20
	segmentAge     = 6 * time.Hour
	defaultMaxAge  = 30 * 24 * time.Hour
)

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.Dir == "" && c.MaxDisk >= 0 {
		errs = append(errs, errors.New("history.Config: Dir is required, unless MaxDisk is negative"))
	}
	if c.MaxDisk > 0 && c.MaxDisk < minMaxDisk {
		errs = append(errs, fmt.Errorf("history.Config: MaxDisk must be at least %d", minMaxDisk))
	}
	for _, field := range []struct {
		name  string
		value int64
	}{{"MaxAge", int64(c.MaxAge)}, {"Sync", int64(c.Sync)}, {"LogBytes", int64(c.LogBytes)}} {
		if field.value < 0 {
			errs = append(errs, fmt.Errorf("history.Config: %s must not be negative", field.name))
		}
	}
	c.MaxDisk = cmp.Or(c.MaxDisk, defaultMaxDisk)
	c.MaxAge = cmp.Or(c.MaxAge, defaultMaxAge)
	c.Sync = cmp.Or(c.Sync, time.Second)
	c.LogLines = cmp.Or(c.LogLines, 50)
	c.LogBytes = cmp.Or(c.LogBytes, 8<<10)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.MemoryAvailable == nil {
		c.MemoryAvailable = func() int64 { return 0 }
	}
	if c.OnNodeChange == nil {
		c.OnNodeChange = func(transition.Change, time.Time) {}
	}
	return c, errors.Join(errs...)
}

func (c *Config) limits() limits {
	maxDisk := c.MaxDisk
	if maxDisk < 0 {
		maxDisk = memoryMaxDisk
	}
	return limits{maxDisk: maxDisk, maxAge: c.MaxAge, segmentSize: min(maxDisk/8, maxSegmentSize), segmentAge: segmentAge}
}
