package manifest

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/heraldnode/herald/podid"
)

// MaxBytes is the largest input that Decode reads.
const MaxBytes = 1 << 20

// ErrEmpty says that the input holds no document at all: it is empty, or has comments and separators only. What that
// means is the caller's to decide; a list with `items: []` is the explicit way to say "no pods" and is no error.
var ErrEmpty = errors.New("no pod and no list of pods is written here")

// Origin is where the bytes came from.
type Origin struct {
	Source   podid.Source // File or HTTP
	Location string       // path or URL, for messages, which show it as it is
	NodeName string       // the node that runs the pods
}

// Decode returns the pods of the input, ready to run as static pods of origin.Node. It is all or nothing: a problem
// anywhere rejects the whole input, so that the caller can keep the last good version (BUG-18). The error is an Errors.
func Decode(data []byte, origin Origin) ([]*v1.Pod, error) {
	found := &problems{location: origin.Location}
	pods := decode(data, origin, found)
	if err := found.err(); err != nil {
		return nil, err
	}
	return pods, nil
}

func decode(data []byte, origin Origin, found *problems) []*v1.Pod {
	if err := origin.check(); err != nil {
		found.add(&Error{Err: err})
		return nil
	}
	documents, problem := split(data)
	if problem != nil {
		found.add(problem)
		return nil
	}
	var authored []authoredPod
	empty := true
	for _, doc := range documents {
		content, problem := doc.parse()
		if problem != nil {
			found.add(problem)
		}
		empty = empty && content == nil && problem == nil
		if content != nil {
			authored = append(authored, content.pods(found)...)
		}
	}
	if empty {
		found.add(&Error{Err: ErrEmpty})
	}
	return build(authored, origin, found)
}

// build makes static pods of what the authors wrote. No two of them may share a full name or a UID.
func build(authored []authoredPod, origin Origin, found *problems) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(authored))
	names := make(map[podid.FullName]int)
	uids := make(map[podid.UID]int)
	for _, a := range authored {
		pod := a.build(origin, found)
		if pod == nil {
			continue
		}
		if first, taken := names[podid.FullNameOf(pod)]; taken {
			a.report(found, a.path("metadata", "name"), fmt.Errorf("the pod on line %d has the same name", first))
		} else if first, taken := uids[podid.UID(pod.UID)]; taken {
			a.report(found, a.path("metadata", "uid"), fmt.Errorf("the pod on line %d has the same uid", first))
		}
		names[podid.FullNameOf(pod)] = a.place.line
		uids[podid.UID(pod.UID)] = a.place.line
		pods = append(pods, pod)
	}
	return pods
}

// check tells what is wrong with the caller's own part of the input, before any document is blamed for it.
func (o Origin) check() error {
	if o.Source != podid.File && o.Source != podid.HTTP {
		return fmt.Errorf("source %q: static pods come from %q or %q", o.Source, podid.File, podid.HTTP)
	}
	if msgs := apivalidation.NameIsDNSSubdomain(o.NodeName, false); len(msgs) > 0 {
		// CFG-9: the API server refuses such a node name as well, so lowering it here would only hide the fault.
		return fmt.Errorf("node name %q: %s; set another node name", clip(o.NodeName), msgs[0])
	}
	return nil
}
