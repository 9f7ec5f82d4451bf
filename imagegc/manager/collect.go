package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/imagegc"
)

// Reasons of removals, as in the kubelet's metric (IGC-15).
const (
	reasonAge   = "age"
	reasonSpace = "space"
)

// collect is one pass: by age, then by space (IGC-1).
func (m *Manager) collect(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	candidates, err := m.observeLocked(ctx, now)
	if err != nil {
		return err
	}
	var removed []imagegc.Candidate
	defer func() { m.endLocked(ctx, removed) }()
	old, ageErr := m.collectOldLocked(ctx, candidates, now)
	removed = old
	candidates = slices.DeleteFunc(candidates, func(candidate imagegc.Candidate) bool {
		return slices.ContainsFunc(old, func(gone imagegc.Candidate) bool { return gone.ID == candidate.ID && gone.Handler == candidate.Handler })
	})
	forSpace, spaceErr := m.collectForSpaceLocked(ctx, m.config.Policy.Removable(candidates, now))
	removed = append(removed, forSpace...)
	return errors.Join(ageErr, spaceErr)
}

// ReclaimImages removes all images that may be removed for space, however much is used: the node is under disk pressure (IGC-14).
func (m *Manager) ReclaimImages(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now := time.Now()
	candidates, err := m.observeLocked(ctx, now)
	if err != nil {
		return err
	}
	r := removal{Manager: m, reason: reasonSpace}
	for _, candidate := range m.config.Policy.Removable(candidates, now) {
		r.removeLocked(ctx, candidate)
	}
	r.tell("because the node is under disk pressure")
	m.endLocked(ctx, r.removed)
	return r.err()
}

// endLocked follows the removal of images: their pull records go, and the records of the rest are saved.
func (m *Manager) endLocked(ctx context.Context, removed []imagegc.Candidate) {
	if len(removed) == 0 {
		return
	}
	m.saveLocked(time.Now())
	if err := m.config.Runtime.PrunePullRecords(ctx); err != nil {
		m.config.Logger.Warn("Failed to prune image pull records", "err", err)
	}
}

func (m *Manager) collectOldLocked(ctx context.Context, candidates []imagegc.Candidate, now time.Time) ([]imagegc.Candidate, error) {
	r := removal{Manager: m, reason: reasonAge}
	for _, candidate := range m.config.Policy.Expired(candidates, now) {
		r.removeLocked(ctx, candidate)
	}
	r.tell(fmt.Sprintf("because no container has used them for more than %v", m.config.Policy.MaxAge))
	if err := r.err(); err != nil {
		return r.removed, fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w", m.config.Policy.MaxAge, err)
	}
	return r.removed, nil
}

// collectForSpaceLocked removes images in the given order until enough is available.
func (m *Manager) collectForSpaceLocked(ctx context.Context, removable []imagegc.Candidate) ([]imagegc.Candidate, error) {
	before, err := m.config.Runtime.ImageFileSystem(ctx)
	if err != nil {
		return nil, err
	}
	if before.Bytes.Capacity <= 0 {
		m.event(v1.EventTypeWarning, "InvalidDiskCapacity", imagegc.ErrNoCapacity.Error())
		return nil, imagegc.ErrNoCapacity
	}
	goal, isExceeded := m.config.Policy.Goal(before)
	if !isExceeded {
		return nil, nil
	}
	r := removal{Manager: m, reason: reasonSpace}
	after := before
	for _, candidate := range removable {
		if goal.IsReached(after) || ctx.Err() != nil {
			break
		}
		if !r.removeLocked(ctx, candidate) {
			continue
		}
		if after, err = r.measureLocked(ctx, goal, before); err != nil {
			r.errs = append(r.errs, err)
			break
		}
	}
	freed := max(0, after.Bytes.Available-before.Bytes.Available)
	r.tell(fmt.Sprintf("because %s of the image filesystem were used", describe(before)))
	switch err := r.err(); {
	case err != nil:
		return r.removed, fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			goal.MissingBytes(before), freed, err)
	case !goal.IsReached(after):
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", describe(before), freed)
		m.event(v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
		return r.removed, errors.New(message)
	}
	return r.removed, nil
}

// describe returns how much is used, as "91% of 20.0 GiB".
func describe(usage imagegc.Usage) string {
	if percent := usage.Inodes.UsedPercent(); percent > usage.Bytes.UsedPercent() {
		return fmt.Sprintf("%d%% of %d inodes", percent, usage.Inodes.Capacity)
	}
	return fmt.Sprintf("%d%% of %s", usage.Bytes.UsedPercent(), formatSize(usage.Bytes.Capacity))
}

// removal removes images for one reason.
type removal struct {
	*Manager
	reason  string
	removed []imagegc.Candidate
	size    int64 // of the removed images
	errs    []error
}

// removeLocked reports whether the image was removed. An error does not stop the removal of others (IGC-9).
func (r *removal) removeLocked(ctx context.Context, candidate imagegc.Candidate) bool {
	isRemoved, err := r.config.Runtime.RemoveImage(ctx, candidate.Image)
	if err != nil {
		r.errs = append(r.errs, err)
		return false
	}
	if !isRemoved {
		return false
	}
	r.config.Logger.Info("Removed image", "image", name(candidate), "id", candidate.ID, "size", candidate.Size, "reason", r.reason)
	r.Manager.removed.WithLabelValues(r.reason).Inc()
	r.records = r.records.Without(candidate.Image)
	r.removed = append(r.removed, candidate)
	r.size += candidate.Size
	return true
}

// measureLocked measures what is used now. Removed images may share layers with others, so their sizes say only what can have become
// available at most (BUG-134). If that would be enough, the file system gets time to show it before the next image is removed.
func (r *removal) measureLocked(ctx context.Context, goal imagegc.Goal, before imagegc.Usage) (imagegc.Usage, error) {
	after, err := r.config.Runtime.ImageFileSystem(ctx)
	if err != nil || goal.IsReached(after) || r.size < goal.MissingBytes(before) {
		return after, err
	}
	select {
	case <-time.After(settleTime):
	case <-ctx.Done():
		return after, ctx.Err()
	}
	return r.config.Runtime.ImageFileSystem(ctx)
}

func (r *removal) err() error { return errors.Join(r.errs...) }

// maxNames bounds the names in an event.
const maxNames = 10

// tell records which images were removed and why. The kubelet does not.
func (r *removal) tell(why string) {
	if len(r.removed) == 0 {
		return
	}
	var names []string
	for _, candidate := range r.removed {
		if len(names) == maxNames {
			names = append(names, fmt.Sprintf("and %d more", len(r.removed)-maxNames))
			break
		}
		names = append(names, name(candidate))
	}
	noun := "images"
	if len(r.removed) == 1 {
		noun = "image"
	}
	r.event(v1.EventTypeNormal, "ImagesRemoved",
		fmt.Sprintf("Removed %d unused %s (%s) %s: %s", len(r.removed), noun, formatSize(r.size), why, strings.Join(names, ", ")))
}

// name returns the name that people know the image by.
func name(candidate imagegc.Candidate) string {
	if len(candidate.Names) > 0 {
		return candidate.Names[0]
	}
	return candidate.ID
}

// formatSize returns the size as the kubelet's events show it: 20.0 GiB.
func formatSize(bytes int64) string {
	size, unit := float64(bytes), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
