package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/permission"
	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// AnyExtension in FileConfig.Extensions matches every file name, as in the kubelet. Hidden files and backups are skipped
// nevertheless.
const AnyExtension = "*"

// FileConfig configures a File source.
type FileConfig struct {
	// Path is a directory of manifests or a single manifest. Required. It need not exist yet.
	Path string
	// NodeName is the name of the node that runs the pods. Required.
	NodeName string
	// Period is the interval between scans without a notification. Notifications can be lost, and network file systems send
	// none. Defaults to 20s.
	Period time.Duration
	// Settle is how long a file must be unchanged before it is read, so that a partially written manifest is not used. A file
	// that changes continuously is read after one Period. Defaults to 50ms.
	Settle time.Duration
	// Extensions are the file name extensions of manifests in a directory, in lower case and with the dot, or AnyExtension.
	// If Path is a file, it is read whatever its name. Defaults to .yaml, .yml and .json.
	Extensions []string
	// AllowUnsafePermissions also reads manifests that users other than root and the agent's user can write, and symbolic
	// links to files outside the directory. Defaults to false.
	AllowUnsafePermissions bool
	// Decode decodes a manifest. Defaults to manifest.Decode.
	Decode Decoder
	// NewWatcher creates the file system watcher. Defaults to fsnotify.NewWatcher.
	NewWatcher func() (*fsnotify.Watcher, error)
	// Logger receives debug messages. Defaults to slog.DiscardHandler.
	Logger *slog.Logger
}

// File reads static pods from a directory or a file.
//
// Run is called once. The goroutine that calls Run or Scan owns all fields but ignored.
type File struct {
	config      FileConfig
	path        string
	permissions permission.Checker

	files    map[string]manifestFile   // by name
	owners   map[podid.FullName]string // path of the file that defines each pod
	found    directoryID               // directory found by the last scan, zero if none
	scanned  directoryID               // directory that the last successful scan read
	single   bool                      // the path was a file in that scan
	listing  Listing                   // result of the last successful scan
	replaced bool                      // sink.Replace was called
	reported []*v1.Pod                 // with these pods

	mu      sync.Mutex // guards ignored
	ignored []IgnoredFile
}

// NewFile returns a File source. It returns an error if the configuration is invalid.
func NewFile(config FileConfig) (*File, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(config.Path) // also removes trailing slashes (CFG-12)
	if err != nil {
		return nil, fmt.Errorf("source.FileConfig: Path: %w", err)
	}
	return &File{config: config.withDefaults(), path: path, permissions: permission.New("start pods")}, nil
}

func (c FileConfig) validate() error {
	var errs []error
	if c.Path == "" {
		errs = append(errs, errors.New("source.FileConfig: Path is required"))
	}
	if c.NodeName == "" {
		errs = append(errs, errors.New("source.FileConfig: NodeName is required"))
	}
	if c.Period < 0 {
		errs = append(errs, errors.New("source.FileConfig: Period must not be negative"))
	}
	if c.Settle < 0 {
		errs = append(errs, errors.New("source.FileConfig: Settle must not be negative"))
	}
	for _, extension := range c.Extensions {
		if extension != AnyExtension && (!strings.HasPrefix(extension, ".") || strings.ToLower(extension) != extension) {
			errs = append(errs, fmt.Errorf("source.FileConfig: Extensions must be like .yaml or %s, not %q", AnyExtension, extension))
		}
	}
	return errors.Join(errs...)
}

func (c FileConfig) withDefaults() FileConfig {
	c.Period = cmp.Or(c.Period, 20*time.Second)
	c.Settle = cmp.Or(c.Settle, 50*time.Millisecond)
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

// Origin returns the path.
func (f *File) Origin() string { return f.path }

// Ignored returns the files that the last scan skipped because of their names. It is safe for concurrent use.
func (f *File) Ignored() []IgnoredFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ignored)
}

// Run implements Source. A notification only triggers a scan. The result depends on the state of the file system alone.
func (f *File) Run(ctx context.Context, sink Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	watcher := newPathWatcher(f.config, f.path)
	running.Go(func() { watcher.run(ctx) })

	ticker := time.NewTicker(f.config.Period)
	defer ticker.Stop()
	listing := f.scan(f.config.Settle)
	f.report(sink, listing, watcher)
	for f.wait(ctx, ticker.C, watcher.changed, listing.delayed) {
		previous := f.found
		listing = f.scan(f.config.Settle)
		if f.found != previous {
			watcher.restart.Set() // the watch is on a directory that is no longer at the path
		}
		f.report(sink, listing, watcher)
	}
	return nil
}

func (f *File) report(sink Sink, listing Listing, watcher *pathWatcher) {
	f.setIgnored(listing.Ignored)
	if listing.Known && (!f.replaced || !slices.Equal(f.reported, listing.Pods)) {
		sink.Replace(listing.Pods)
		f.reported, f.replaced = listing.Pods, true
	}
	sink.Report(slices.Concat(listing.Problems, watcher.problems()))
}

func (f *File) setIgnored(ignored []IgnoredFile) {
	f.mu.Lock()
	changed := !slices.Equal(f.ignored, ignored)
	f.ignored = ignored
	f.mu.Unlock()
	if changed {
		f.config.Logger.Debug("Ignored files in manifest directory", "files", ignored)
	}
}

// wait returns true when the next scan is due, and false when ctx is done. After a notification, and while a file is being
// written, it waits for the settle time.
func (f *File) wait(ctx context.Context, tick <-chan time.Time, changed <-chan struct{}, delayed bool) bool {
	if !delayed {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-changed:
		}
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(f.config.Settle):
		return true
	}
}
