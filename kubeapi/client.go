// Package kubeapi is the API server as Herald talks to it: the few requests that a node's agent makes, typed, over
// client-go's REST client.
//
// It is not the clientset, which brings every API group, and with them hundreds of packages. The stages do not import
// this package; they declare the methods they need, and a Client has them.
//
// No request is repeated here: whoever asks decides when to ask again, and has the server's Retry-After in the error
// (apierrors.SuggestsClientDelay); client-go would sleep as long as that says, were it a year. Errors name the operation
// and the object and wrap the server's answer, so that apierrors.IsNotFound and its kin see through them.
package kubeapi

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// Client talks to one API server, over connections that no other client shares. Any goroutine may call it.
type Client struct {
	rest        rest.Interface
	connections *connrotation.ConnectionTracker
	// metadataOnly is the Accept header that asks for an object's metadata instead of the object.
	metadataOnly string
}

// New makes a client from cfg, which stays as it was. No request is sent.
//
// Three fields have a default of their own here: ContentType is protobuf, AcceptContentTypes is protobuf and else JSON,
// UserAgent is "herald". The rest is the caller's: mind that client-go takes a QPS of 0 for 5 per second, and -1 for no
// limit.
func New(cfg *rest.Config) (*Client, error) {
	if cfg == nil {
		return nil, errors.New("kubeapi: no rest.Config")
	}
	cfg = withDefaults(cfg)
	freshTokens(cfg)
	own := ownConnections(cfg)
	freshCertificates(cfg, own)
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeapi: make a client for %q: %w", cfg.Host, err)
	}
	return &Client{
		rest: client, connections: own, metadataOnly: cfg.ContentType + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	}, nil
}

func withDefaults(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/api"
	cfg.GroupVersion = &v1.SchemeGroupVersion
	cfg.NegotiatedSerializer = NewCodecs().WithoutConversion()
	if cfg.ContentType == "" {
		cfg.ContentType = runtime.ContentTypeProtobuf
	}
	if cfg.AcceptContentTypes == "" && cfg.ContentType == runtime.ContentTypeProtobuf {
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "herald"
	}
	return cfg
}
