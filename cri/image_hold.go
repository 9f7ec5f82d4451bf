package cri

import (
	"context"
	"errors"
	"sync"

	"github.com/heraldnode/herald/internal/image"
)

// errImageHeld means that a container is about to be created from the image.
var errImageHeld = errors.New("a container is about to be created from the image")

// imageHolds keeps images of containers that are being started from being removed. Between the look whether an image is present and the
// creation of the container, no container of the runtime's list uses it.
type imageHolds struct {
	mu       sync.Mutex // guards what follows
	held     map[string]int
	removing map[string]chan struct{} // closed when the removal has ended
}

func newImageHolds() *imageHolds {
	return &imageHolds{held: map[string]int{}, removing: map[string]chan struct{}{}}
}

// holdKey returns the same key for all spellings of a name: busybox and docker.io/library/busybox:latest.
func holdKey(name string) string {
	parsed, err := image.Parse(name)
	switch {
	case err != nil:
		return name // an ID
	case parsed.Digest != "":
		return parsed.Repository + "@" + parsed.Digest
	case parsed.Tag != "":
		return parsed.Repository + ":" + parsed.Tag
	default:
		return parsed.Repository + ":" + image.DefaultTag
	}
}

// hold prevents the removal of the image with this name or ID until release is called. It waits for a removal that is in progress.
func (h *imageHolds) hold(ctx context.Context, name string) (release func(), err error) {
	key := holdKey(name)
	for {
		h.mu.Lock()
		removing := h.removing[key]
		if removing == nil {
			h.held[key]++
			h.mu.Unlock()
			return func() { h.release(key) }, nil
		}
		h.mu.Unlock()
		select {
		case <-removing:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (h *imageHolds) release(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[key]--; h.held[key] == 0 {
		delete(h.held, key)
	}
}

// remove runs the removal of an image with these names, unless one of them is held.
func (h *imageHolds) remove(names []string, run func() error) error {
	ended := make(chan struct{})
	h.mu.Lock()
	for _, name := range names {
		if key := holdKey(name); h.held[key] > 0 || h.removing[key] != nil {
			h.mu.Unlock()
			return errImageHeld
		}
	}
	for _, name := range names {
		h.removing[holdKey(name)] = ended
	}
	h.mu.Unlock()
	err := run()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		delete(h.removing, holdKey(name))
	}
	close(ended)
	return err
}
