package source

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// apiReports keeps what is wrong with the API server. The reflector's goroutine and the lists that it waits for use it,
// one after the other.
type apiReports struct {
	sink    Sink
	failure string // of the last request
	foreign string // a pod that is not ours
}

// requested notes how a request went. That a version is no longer kept is no failure: the reflector asks for a newer
// one at once.
func (r *apiReports) requested(verb string, err error) {
	switch {
	case err == nil:
		r.failure = ""
	case errors.Is(err, context.Canceled), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return
	default:
		r.failure = fmt.Sprintf("cannot %s pods, so those that are known stay: %v", verb, withoutURL(err))
	}
	r.report()
}

// sawForeign notes a pod of another node that a complete list had, or "" for none.
func (r *apiReports) sawForeign(description string) {
	r.foreign = description
	r.report()
}

func (r *apiReports) report() {
	var problems []Problem
	for _, message := range [...]string{r.failure, r.foreign} {
		if message != "" {
			problems = append(problems, Problem{Location: "API server", Message: message})
		}
	}
	r.sink.Report(problems)
}
