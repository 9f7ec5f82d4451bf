package checkpoint

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Options of a Dir.
type Options struct {
	// MaxSize is the largest payload in bytes that is saved, and loaded into memory; at most 1 GiB. Default: 64 MiB, which
	// the statuses of some 15 000 pods fill.
	MaxSize int
}

const (
	defaultMaxSize = 64 << 20
	largestMaxSize = 1 << 30
)

// Dir is a folder of checkpoints that this process holds. All methods may be called from any goroutine; they take turns,
// so that a Load sees a Save whole.
type Dir struct {
	path    string
	maxSize int
	root    folder
	disk    disk // root, unless a test made it fail

	// turn holds one value while a method works on the files: a channel and not a mutex, because it is kept during I/O.
	// It guards the files and unsynced; what needs it ends in Locked.
	turn     chan struct{}
	unsynced bool // the folder may have changes that a power cut would undo
}

// Open takes the folder for this process, creates it for its owner alone if it is missing, and removes what a crash left
// half written. It fails with a *LockedError when another process has the folder. A folder that is full or read-only can
// be opened: its checkpoints can be loaded, and each Save says what is wrong (F17).
func Open(path string, options Options) (*Dir, error) {
	return open(path, options, func(f folder) disk { return f })
}

func open(path string, options Options, diskOf func(folder) disk) (*Dir, error) {
	if options.MaxSize < 0 || options.MaxSize > largestMaxSize {
		return nil, fmt.Errorf("checkpoint: Options.MaxSize is %d: want 1 to %d bytes, or 0 for the default", options.MaxSize, largestMaxSize)
	}
	if options.MaxSize == 0 {
		options.MaxSize = defaultMaxSize
	}
	root, err := openFolder(path)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint folder %s: %w", path, err)
	}
	d := &Dir{
		path: path, maxSize: options.MaxSize, root: root, disk: diskOf(root),
		turn: make(chan struct{}, 1),
		// The process before may have died between a rename and the sync that makes it last.
		unsynced: true,
	}
	d.removeLeftovers()
	return d, nil
}

// Close gives the folder back, after the call that is at work now. Later calls fail with fs.ErrClosed.
func (d *Dir) Close() error {
	defer d.takeTurn()()
	if err := d.root.Close(); err != nil {
		return fmt.Errorf("close checkpoint folder %s: %w", d.path, err)
	}
	return nil
}

// List names the checkpoints of the folder in alphabetical order, good or not.
func (d *Dir) List() ([]string, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list checkpoint folder %s: %w", d.path, err)
	}
	var names []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && isName(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Remove deletes a checkpoint. One that does not exist is no error.
func (d *Dir) Remove(name string) error {
	if !isName(name) {
		return fmt.Errorf("remove checkpoint %q: %w", name, ErrInvalidName)
	}
	defer d.takeTurn()()
	if err := d.removeLocked(name); err != nil {
		return fmt.Errorf("remove checkpoint %s: %w", d.pathOf(name), err)
	}
	return nil
}

// takeTurn waits for the files to be free and returns what frees them.
func (d *Dir) takeTurn() (release func()) {
	d.turn <- struct{}{}
	return func() { <-d.turn }
}

func (d *Dir) pathOf(name string) string { return filepath.Join(d.path, name) }

// isName leaves out dots, so that no name can be that of a temporary file, of one that was set aside, or lead elsewhere.
func isName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return name != "" && len(name) <= 100 && name[0] != '-' && name[0] != '_' && strings.TrimLeft(name, allowed) == ""
}
