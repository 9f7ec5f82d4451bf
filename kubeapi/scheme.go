package kubeapi

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// NewScheme knows the types that Herald exchanges with an API server, and no others: every API group more is weight in
// the importer's binary.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme)) // for tokens of service accounts
	utilruntime.Must(coordinationv1.AddToScheme(scheme))   // for leases of nodes
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	return scheme
}

// NewCodecs reads and writes the types of NewScheme in every wire format that an API server speaks.
func NewCodecs() serializer.CodecFactory { return serializer.NewCodecFactory(NewScheme()) }
