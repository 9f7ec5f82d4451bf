// Package kubeapi provides a typed API client for a node agent, over client-go's REST client.
//
// It replaces client-go's clientset, which links every API group and hundreds of packages. The components do not import this
// package: each declares an interface with the methods that it needs, and Client implements them.
//
// A request is sent once. The caller decides when to retry and finds the server's Retry-After in the error
// (apierrors.SuggestsClientDelay); client-go would sleep for as long as the header says. Errors name the operation and the
// object and wrap the server's response, so that apierrors.IsNotFound and the like work.
package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/heraldnode/herald/internal/latency"
)

// Client sends requests to one API server, over connections that it shares with no other client. It is safe for concurrent
// use.
type Client struct {
	rest        rest.Interface
	connections *connrotation.ConnectionTracker
	// metadataOnly is the Accept header that requests an object's metadata instead of the object.
	metadataOnly string
	recent       *latency.Recent
}

// New returns a client for the config, which it does not modify. It sends no request.
//
// Three fields have defaults that differ from client-go's: ContentType is protobuf, AcceptContentTypes is protobuf or JSON,
// and UserAgent is "herald". Note that client-go treats a QPS of 0 as 5, and -1 as unlimited.
func New(config *rest.Config) (*Client, error) {
	if config == nil {
		return nil, errConfigRequired
	}
	return newClient(config, nil)
}

var errConfigRequired = errors.New("kubeapi: rest.Config is required")

// newClient returns a client with the certificate, or with the credentials of the config if that is nil.
func newClient(config *rest.Config, certificate ClientCertificate) (*Client, error) {
	config = withDefaults(config)
	reloadToken(config)
	connections := trackConnections(config)
	if config.CertFile != "" || certificate != nil {
		reloadCertificate(config, connections)
	}
	recent := &latency.Recent{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return timedTransport{next, recent} })
	httpClient, err := newHTTPClient(config, certificate)
	if err != nil {
		return nil, fmt.Errorf("kubeapi: create HTTP client for %q: %w", config.Host, err)
	}
	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("kubeapi: create REST client for %q: %w", config.Host, err)
	}
	return &Client{
		recent: recent,
		rest:   client, connections: connections,
		metadataOnly: config.ContentType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	}, nil
}

func withDefaults(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &v1.SchemeGroupVersion
	config.NegotiatedSerializer = NewCodecs().WithoutConversion()
	config.ContentType = cmp.Or(config.ContentType, runtime.ContentTypeProtobuf)
	if config.AcceptContentTypes == "" && config.ContentType == runtime.ContentTypeProtobuf {
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	config.UserAgent = cmp.Or(config.UserAgent, "herald")
	return config
}

// NewScheme returns a scheme with the types that Herald exchanges with an API server. Every further API group would add to the
// size of importing binaries.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme)) // service account tokens, token reviews
	utilruntime.Must(authorizationv1.AddToScheme(scheme))  // access reviews
	utilruntime.Must(certificatesv1.AddToScheme(scheme))   // the node's certificates
	utilruntime.Must(coordinationv1.AddToScheme(scheme))   // node leases
	utilruntime.Must(nodev1.AddToScheme(scheme))           // runtime classes
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	return scheme
}

// NewCodecs returns codecs for the types of NewScheme, in all wire formats of an API server.
func NewCodecs() serializer.CodecFactory { return serializer.NewCodecFactory(NewScheme()) }

// object is a stored API object.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// key identifies the object of a request in errors.
type key struct{ namespace, name string }

// String returns namespace/name, or the name of an object without namespace.
func (k key) String() string {
	if k.namespace == "" {
		return k.name
	}
	return k.namespace + "/" + k.name
}

var errNoUID = errors.New("the response is not an API object: it has no UID")

// do sends the request once and returns the object of the response. client-go would sleep through a 429 in the caller's
// goroutine, up to ten times (F4).
//
// An object without UID does not come from an API server, whatever the status code. Accepting it would suggest that the name
// belongs to another pod, or that the node was replaced (F10).
func do[T any, Object object[T]](ctx context.Context, request *rest.Request, operation string, key key) (Object, error) {
	response := Object(new(T))
	err := request.MaxRetries(0).Do(ctx).Into(response)
	if err == nil && response.GetUID() == "" {
		err = errNoUID
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", operation, key, err)
	}
	return response, nil
}
