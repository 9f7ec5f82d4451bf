package kubeapi

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// object is what an API server keeps under a UID.
type object interface {
	metav1.Object
	runtime.Object
}

// read takes the object out of the server's answer. One without a UID is not an API server's, whatever the code that it
// came with: believed, it would tell that a pod's name has passed to another pod, or that a node is not the one that it
// was (F10).
func read(answer rest.Result, into object) error {
	if err := answer.Into(into); err != nil {
		return err
	}
	if into.GetUID() == "" {
		return errNoObject
	}
	return nil
}

var errNoObject = errors.New("the answer holds no object: it has no UID")
