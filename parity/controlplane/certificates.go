package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is longer than any test runs.
const validity = 365 * 24 * time.Hour

// authority is a certificate authority. Only NewSigner writes its key to a file. It is immutable.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// keyPair is a certificate and its key as PEM.
type keyPair struct{ cert, key []byte }

func newAuthority(name string) *authority {
	key := newKey()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der := sign(template, template, key, key)
	certificate, err := x509.ParseCertificate(der)
	must(err)
	return &authority{certificate: certificate, key: key, pem: encode("CERTIFICATE", der)}
}

// issueServer issues a certificate for a server on loopback. It is valid for clients too: etcd's parts call each other with it.
func (a *authority) issueServer(name string) keyPair {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost"},
	})
}

// issueClient issues a certificate that the API server maps to a user and its groups.
func (a *authority) issueClient(user string, groups ...string) keyPair {
	return a.issueIdentity(Identity{User: user, Groups: groups})
}

// issueIdentity issues a certificate for a user, with the lifetime of the identity.
func (a *authority) issueIdentity(identity Identity) keyPair {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: identity.User, Organization: identity.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   identity.NotBefore,
		NotAfter:    identity.NotAfter,
	})
}

func (a *authority) issue(template *x509.Certificate) keyPair {
	key := newKey()
	return keyPair{cert: encode("CERTIFICATE", sign(template, a.certificate, key, a.key)), key: encodeKey(key)}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// clientTLS returns the configuration of a client with this certificate for servers of this authority.
func (a *authority) clientTLS(pair keyPair) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.pool(), Certificates: []tls.Certificate{pair.tls()}}
}

// serverTLS returns the configuration of a server with this certificate. It accepts clients of this authority and clients without
// a certificate.
func (a *authority) serverTLS(pair keyPair) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair.tls()},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: a.pool(),
	}
}

func (p keyPair) tls() tls.Certificate {
	certificate, err := tls.X509KeyPair(p.cert, p.key)
	must(err)
	return certificate
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(err)
	template.SerialNumber = serial
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour) // tolerate clock skew
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(validity)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	must(err)
	return der
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	return key
}

// encodeKey uses the format from which kube-apiserver can also read the public key.
func encodeKey(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	must(err)
	return encode("EC PRIVATE KEY", der)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// must panics on an error. All inputs are generated in this file, so an error is a bug.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("controlplane: certificates: %v", err))
	}
}
