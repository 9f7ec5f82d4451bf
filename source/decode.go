package source

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/source/manifest"
)

// Decoder turns the bytes of a manifest into pods that are ready to run, all or nothing. manifest.Decode is one.
type Decoder func(data []byte, origin manifest.Origin) ([]*v1.Pod, error)

// problemsOf makes what a decoder complains about visible, one problem for each fault that it found.
func problemsOf(location string, err error) []Problem {
	var faults manifest.Errors
	if !errors.As(err, &faults) {
		return []Problem{{Location: location, Message: err.Error()}}
	}
	problems := make([]Problem, 0, len(faults))
	for _, fault := range faults {
		bare := manifest.Error{Err: fault.Err}
		problems = append(problems, Problem{
			Location: location, Line: fault.Line, Field: fault.Field, Message: bare.Error(),
		})
	}
	return problems
}
