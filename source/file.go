package source

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// FileConfig says which manifests are read.
type FileConfig struct {
	// Path of a directory of manifests or of one manifest. Required. It need not exist yet.
	Path string
	// NodeName is the name of the node that runs the pods. Required.
	NodeName string
	// Period is how often the path is looked at when nothing seems to happen: notifications can be lost, and network
	// file systems send none. Default 20 s.
	Period time.Duration
	// Settle is how long a file must have been left alone before it is read, so that half a manifest is not taken for a
	// whole one; a file that is written to without a pause is read after one Period. Default 50 ms.
	Settle time.Duration
	// Extensions that the names of manifests in a directory have, in lower case and with the dot, or AnyExtension.
	// A path that is a file is read whatever its name. Default .yaml, .yml, .json.
	Extensions []string
	// AllowUnsafePermissions reads manifests that others than root and the agent's user can write, and those that links in
	// the directory lead out to. Default false.
	AllowUnsafePermissions bool
	// Decode reads a manifest. Default manifest.Decode.
	Decode Decoder
	// NewWatcher opens what notifies of changes. Default fsnotify.NewWatcher.
	NewWatcher func() (*fsnotify.Watcher, error)
	// Logger gets what is of interest in a search for faults only (Debug). Default: silence.
	Logger *slog.Logger
}

// File reads static pods from a directory or a file.
//
// Run is called once. The goroutine that calls it, or Scan, owns all fields but ignored.
type File struct {
	config FileConfig
	path   string
	agent  owner // who this process is

	files   map[string]manifestFile   // by name
	owners  map[podid.FullName]string // the file that each pod comes from
	found   place                     // the directory that was found last
	place   place                     // the directory that was read last
	single  bool                      // the path was a file then
	listing Listing                   // the last one that could be made
	spoke   bool                      // the sink was told a set,
	told    []*v1.Pod                 // this one last

	mu      sync.Mutex // guards ignored
	ignored []string
}

// NewFile checks the configuration.
func NewFile(config FileConfig) (*File, error) {
	switch {
	case config.Path == "":
		return nil, fmt.Errorf("source.FileConfig.Path: required")
	case config.NodeName == "":
		return nil, fmt.Errorf("source.FileConfig.Node: required")
	case config.Period < 0:
		return nil, fmt.Errorf("source.FileConfig.Period: %v is negative", config.Period)
	case config.Settle < 0:
		return nil, fmt.Errorf("source.FileConfig.Settle: %v is negative", config.Settle)
	}
	for _, extension := range config.Extensions {
		if extension != AnyExtension && (!strings.HasPrefix(extension, ".") || strings.ToLower(extension) != extension) {
			return nil, fmt.Errorf("source.FileConfig.Extensions: %q is not like .yaml or %s", extension, AnyExtension)
		}
	}
	path, err := filepath.Abs(config.Path) // also trims trailing slashes (CFG-12)
	if err != nil {
		return nil, fmt.Errorf("source.FileConfig.Path: %w", err)
	}
	agent := owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	return &File{config: config.withDefaults(), path: path, agent: agent}, nil
}

func (c FileConfig) withDefaults() FileConfig {
	if c.Period == 0 {
		c.Period = 20 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 50 * time.Millisecond
	}
	if len(c.Extensions) == 0 {
		c.Extensions = []string{".yaml", ".yml", ".json"}
	}
	if c.Decode == nil {
		c.Decode = manifest.Decode
	}
	if c.NewWatcher == nil {
		c.NewWatcher = fsnotify.NewWatcher
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Name implements Source.
func (f *File) Name() podid.Source { return podid.File }

// Ignored lists the files that were passed over because of their names: backups, and what has another extension. Any
// goroutine may call it.
func (f *File) Ignored() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ignored)
}

// Run implements Source. A notification only says that it is time to look: what is there decides.
func (f *File) Run(ctx context.Context, sink Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	watch := newPathWatch(f.config, f.path)
	running.Go(func() { watch.run(ctx) })

	ticker := time.NewTicker(f.config.Period)
	defer ticker.Stop()
	listing := f.scan(f.config.Settle)
	f.tell(sink, listing, watch)
	for f.wait(ctx, ticker.C, watch.hints, listing.delayed) {
		before := f.found
		listing = f.scan(f.config.Settle)
		if f.found != before {
			watch.anew() // the old watch is on a directory that is no longer at the path
		}
		f.tell(sink, listing, watch)
	}
	return nil
}

func (f *File) tell(sink Sink, listing Listing, watch *pathWatch) {
	f.remember(listing.Ignored)
	if listing.Known && (!f.spoke || !slices.Equal(f.told, listing.Pods)) {
		sink.Replace(listing.Pods)
		f.told, f.spoke = listing.Pods, true
	}
	sink.Report(slices.Concat(listing.Problems, watch.problems()))
}

func (f *File) remember(ignored []string) {
	f.mu.Lock()
	changed := !slices.Equal(f.ignored, ignored)
	f.ignored = ignored
	f.mu.Unlock()
	if changed {
		f.config.Logger.Debug("files in the manifest directory are ignored because of their names", "files", ignored)
	}
}

// wait returns when the path should be looked at again, or false when ctx ended. Hints and files that are being written
// are given time to settle.
func (f *File) wait(ctx context.Context, tick <-chan time.Time, hints <-chan struct{}, delayed bool) bool {
	if !delayed {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-hints:
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(f.config.Settle):
		return true
	}
}
