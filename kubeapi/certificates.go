package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// CreateCSR creates a signing request and returns the stored object. A node may ask for certificates of its own name only.
func (c *Client) CreateCSR(
	ctx context.Context, request *certificatesv1.CertificateSigningRequest,
) (*certificatesv1.CertificateSigningRequest, error) {
	post := onCSR(c.rest.Post()).Body(request)
	return do[certificatesv1.CertificateSigningRequest](ctx, post, "create signing request", key{name: request.Name})
}

// GetCSR reads a signing request.
func (c *Client) GetCSR(ctx context.Context, name string) (*certificatesv1.CertificateSigningRequest, error) {
	return do[certificatesv1.CertificateSigningRequest](ctx, onCSR(c.rest.Get(), name), "get signing request", key{name: name})
}

// WatchCSR sends the changes of a signing request like WatchConfigMap.
func (c *Client) WatchCSR(ctx context.Context, name, resourceVersion string) (watch.Interface, error) {
	return c.watchObject(ctx, onCSR(c.rest.Get()), key{name: name}, resourceVersion)
}

// onCSR sets the path to the signing requests, or to one of them. Their API group differs from the client's.
func onCSR(request *rest.Request, name ...string) *rest.Request {
	return request.AbsPath(append([]string{"/apis", certificatesv1.GroupName, "v1", "certificatesigningrequests"}, name...)...)
}

// ClientCertificate is a certificate that a client authenticates with and that may change.
type ClientCertificate interface {
	// Current returns the certificate, or nil if there is none yet.
	Current() *tls.Certificate
	// Available returns a channel that is closed when there is a certificate.
	Available() <-chan struct{}
}

// NewWithCertificate returns a client like New that authenticates with this certificate, whatever credentials and transport the config
// has. Requests wait until there is one (CRT-8). Call CloseConnections when it changed: connections keep the
// certificate with which they were opened.
func NewWithCertificate(config *rest.Config, certificate ClientCertificate) (*Client, error) {
	if config == nil {
		return nil, errConfigRequired
	}
	return newClient(rest.AnonymousClientConfig(config), certificate)
}

// newHTTPClient returns the HTTP client of the config, with the certificate if there is one.
func newHTTPClient(config *rest.Config, certificate ClientCertificate) (*http.Client, error) {
	if certificate == nil {
		return rest.HTTPClientFor(config)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &certificateTransport{next, certificate} })
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	settings.TLS.GetCertHolder = &transport.GetCertHolder{
		GetCert: func() (*tls.Certificate, error) { return certificate.Current(), nil },
	}
	roundTripper, err := transport.New(settings)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: roundTripper, Timeout: config.Timeout}, nil
}

// certificateTransport delays requests until there is a certificate: without one they would be anonymous.
type certificateTransport struct {
	http.RoundTripper
	certificate ClientCertificate
}

var errNoCertificate = errors.New("the node has no client certificate yet")

// RoundTrip implements http.RoundTripper.
func (t *certificateTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	select {
	case <-t.certificate.Available():
		return t.RoundTripper.RoundTrip(request)
	default:
	}
	select {
	case <-t.certificate.Available():
		return t.RoundTripper.RoundTrip(request)
	case <-request.Context().Done():
		return nil, fmt.Errorf("%w: %w", errNoCertificate, request.Context().Err())
	}
}

// WrappedRoundTripper returns the transport, for those who look for features of it.
func (t *certificateTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
