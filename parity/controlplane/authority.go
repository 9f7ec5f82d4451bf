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

// validity is longer than any control plane of a test lives.
const validity = 365 * 24 * time.Hour

// authority signs certificates. Its key is never written to a file. It is immutable.
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

// forServer certifies a server on loopback. It may be a client too: etcd's parts call each other with their own.
func (a *authority) forServer(name string) keyPair {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost"},
	})
}

// forUser certifies what the API server reads as a user and its groups.
func (a *authority) forUser(name string, groups ...string) keyPair {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
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

// clientTLS speaks as the pair's owner to servers of this authority.
func (a *authority) clientTLS(pair keyPair) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.pool(), Certificates: []tls.Certificate{pair.tls()}}
}

// serverTLS serves as the pair's owner, and takes clients of this authority or without a certificate.
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
	template.NotBefore = time.Now().Add(-time.Hour) // clocks of other processes may be behind
	template.NotAfter = time.Now().Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	must(err)
	return der
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	return key
}

// encodeKey writes the form from which kube-apiserver can also take the public half.
func encodeKey(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	must(err)
	return encode("EC PRIVATE KEY", der)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// must is for cryptography on inputs that are all ours: it fails only if this file is wrong.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("controlplane: certificates: %v", err))
	}
}
