package checkpoint

import (
	"encoding/json"
	"fmt"
)

// Store keeps one value as JSON under one name. It may be used from any goroutine, as its Dir.
type Store[T any] struct {
	dir     *Dir
	name    string
	version int
}

// NewStore names the checkpoint and the version, 1 or more, of T's JSON. The version changes when an older program would
// misread the JSON, or this one an older program's; new fields alone do not change it.
func NewStore[T any](dir *Dir, name string, version int) (*Store[T], error) {
	if err := dir.savable(name, version, nil); err != nil {
		return nil, fmt.Errorf("checkpoint store %q: %w", name, err)
	}
	return &Store[T]{dir: dir, name: name, version: version}, nil
}

// Save is Dir.Save of the value. Equal values are not written again, as long as T's JSON is the same each time.
func (s *Store[T]) Save(value T) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("save checkpoint %q: %w", s.name, err)
	}
	return s.dir.Save(s.name, s.version, payload)
}

// Load is Dir.Load of the value. A checkpoint of another version and one that is no T are set aside too.
func (s *Store[T]) Load() (T, error) {
	var value, none T
	payload, version, err := s.dir.Load(s.name)
	if err != nil {
		return none, err
	}
	if version != s.version {
		err = fmt.Errorf("%w: %d, this program reads %d", ErrVersion, version, s.version)
	} else if wrong := json.Unmarshal(payload, &value); wrong != nil {
		err = fmt.Errorf("%w: its payload is no %T: %w", ErrCorrupt, value, wrong)
	}
	if err != nil {
		return none, s.dir.Quarantine(s.name, version, payload, err)
	}
	return value, nil
}
