package imagegc

import (
	"cmp"
	"slices"
	"time"
)

// Image is an image that the runtime has.
type Image struct {
	// ID identifies the content. All names of one ID live together (IGC-3).
	ID string
	// Handler is the runtime handler that the image was pulled for, if the runtime distinguishes them.
	Handler string
	// Names are the tags and digests of the image.
	Names []string
	Size  int64
	// Pinned reports that the runtime wants to keep the image (IGC-4).
	Pinned bool
	// InUse reports that a container, running or not, was created from the image or mounts it (IGC-3).
	InUse bool
}

// key identifies the record of the image.
func (i Image) key() string {
	if i.Handler == "" {
		return i.ID
	}
	return i.ID + "," + i.Handler
}

// Record is what is known of an image over time (IGC-5).
type Record struct {
	// FirstDetected is when a pass first listed the image, LastUsed when a pass last saw it in use; zero if none did.
	FirstDetected time.Time `json:"firstDetected"`
	LastUsed      time.Time `json:"lastUsed,omitzero"`
}

// Records are the records of all images.
type Records map[string]Record

// Update returns the records after a pass at this time has listed the images. Records of other images are dropped. changed reports
// whether an image appeared or vanished, or was used for the first time.
func (r Records) Update(images []Image, now time.Time) (updated Records, changed bool) {
	updated = make(Records, len(images))
	for _, image := range images {
		record, found := r[image.key()]
		if !found {
			record.FirstDetected = now
		}
		changed = changed || !found || image.InUse && record.LastUsed.IsZero()
		if image.InUse {
			record.LastUsed = now
		}
		updated[image.key()] = record
	}
	return updated, changed || len(updated) != len(r)
}

// Without returns the records without that of the image.
func (r Records) Without(image Image) Records {
	remaining := make(Records, len(r))
	for key, record := range r {
		if key != image.key() {
			remaining[key] = record
		}
	}
	return remaining
}

// Candidate is an image that may be removed.
type Candidate struct {
	Image
	Record
}

// unusedSince returns since when the image has not been used.
func (c Candidate) unusedSince() time.Time {
	if c.LastUsed.After(c.FirstDetected) {
		return c.LastUsed
	}
	return c.FirstDetected
}

// Candidates returns the images that are neither in use nor pinned, in the order of their removal: the longest unused first, and
// those that were never used before all others (IGC-6).
func (r Records) Candidates(images []Image) []Candidate {
	var candidates []Candidate
	for _, image := range images {
		if record, found := r[image.key()]; found && !image.InUse && !image.Pinned && image.ID != "" {
			candidates = append(candidates, Candidate{image, record})
		}
	}
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstDetected.Compare(b.FirstDetected), cmp.Compare(a.key(), b.key()))
	})
	return candidates
}

// Removable returns the candidates that are old enough to be removed for space (IGC-8).
func (p Policy) Removable(candidates []Candidate, now time.Time) []Candidate {
	var removable []Candidate
	for _, candidate := range candidates {
		if now.Sub(candidate.FirstDetected) >= p.MinAge && candidate.LastUsed.Before(now) {
			removable = append(removable, candidate)
		}
	}
	return removable
}

// Expired returns the candidates that were unused for longer than the maximum age (IGC-13, BUG-132).
func (p Policy) Expired(candidates []Candidate, now time.Time) []Candidate {
	if p.MaxAge == 0 {
		return nil
	}
	var expired []Candidate
	for _, candidate := range p.Removable(candidates, now) {
		if now.Sub(candidate.unusedSince()) > p.MaxAge {
			expired = append(expired, candidate)
		}
	}
	return expired
}
