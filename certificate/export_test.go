package certificate

// SetStep sets a function that is called after each step that changes the directory.
func (s *Store) SetStep(step func()) { s.step = step }
