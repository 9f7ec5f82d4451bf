// Package certificate keeps the certificates of a node: the one with which it authenticates to the API server, the one with which
// its own server answers, and the authorities of that server's clients.
//
// A Manager requests certificates from the API server and renews them (CRT-1 to CRT-10, CRT-20 to CRT-22); a Store keeps them in the
// kubelet's layout, so that either agent can continue with what the other left (CRT-15). A server uses a Serving: a Manager, Files
// that others renew (SRV-3), or a SelfSigned pair (SRV-4). When to ask and what to accept is decided in package rotation.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
)

// Serving provides the certificate of a TLS server, for tls.Config.GetCertificate. It is asked at each handshake and never waits for
// the network.
type Serving interface {
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
}

// CAPool provides the certificate authorities of now. The pool is immutable: another pool means that the authorities changed.
type CAPool interface {
	Current() *x509.CertPool
}

// FirstOf returns a Serving that uses the first of these that has a certificate (CRT-21).
func FirstOf(certificates ...Serving) Serving { return firstOf(certificates) }

type firstOf []Serving

// GetCertificate implements Serving. Its error is that of the last one.
func (f firstOf) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	var err error
	for _, next := range f {
		var found *tls.Certificate
		if found, err = next.GetCertificate(hello); err == nil && found != nil {
			return found, nil
		}
	}
	return nil, err
}
