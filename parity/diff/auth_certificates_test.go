package diff_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net/url"
	"path"
	"testing"
	"time"
)

// kubeletTokenTTL is how long the kubelet caches answers about tokens.
const kubeletTokenTTL = 2 * time.Minute

func newURL(path string) *url.URL { return &url.URL{Path: path} }

func cleanURLPath(requestPath string) string { return path.Clean("/" + requestPath) }

// clientCA issues certificates to clients.
type clientCA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// Current implements auth.CAPool.
func (c *clientCA) Current() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.certificate)
	return pool
}

// issueCertificate issues a certificate for a client, after changes by modify. It is self-signed if there is no issuer.
func issueCertificate(t *testing.T, issuer *clientCA, modify func(*x509.Certificate)) *clientCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	modify(template)
	parent, parentKey := template, key
	if issuer != nil {
		parent, parentKey = issuer.certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &clientCA{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// newClientCertificates returns chains of client certificates by name, and the authority of those that are valid.
func newClientCertificates(t *testing.T) (map[string][]*x509.Certificate, *clientCA) {
	t.Helper()
	asCA := func(c *x509.Certificate) {
		c.Subject.CommonName, c.IsCA, c.KeyUsage, c.ExtKeyUsage = "ca", true, x509.KeyUsageCertSign, nil
	}
	ca, otherCA := issueCertificate(t, nil, asCA), issueCertificate(t, nil, asCA)
	intermediate := issueCertificate(t, ca, func(c *x509.Certificate) {
		asCA(c)
		c.Subject.CommonName = "intermediate"
	})
	named := func(name string, groups ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name, Organization: groups} }
	}
	issue := func(issuer *clientCA, modify func(*x509.Certificate)) []*x509.Certificate {
		return []*x509.Certificate{issueCertificate(t, issuer, modify).certificate}
	}
	return map[string][]*x509.Certificate{
		"":       nil,
		"valid":  issue(ca, named("admin")),
		"groups": issue(ca, named("ops", "g1", "g2", "system:masters")),
		"uid": issue(ca, func(c *x509.Certificate) {
			c.Subject = pkix.Name{CommonName: "carol", ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "u7"},
			}}
		}),
		"no name":   issue(ca, named("", "system:masters")),
		"anonymous": issue(ca, named("system:anonymous")),
		"other CA":  issue(otherCA, named("admin")),
		"expired": issue(ca, func(c *x509.Certificate) {
			c.Subject.CommonName, c.NotAfter = "admin", time.Now().Add(-time.Minute)
		}),
		"server": issue(ca, func(c *x509.Certificate) {
			c.Subject.CommonName, c.ExtKeyUsage = "admin", []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
		"chain":        append(issue(intermediate, named("dave")), intermediate.certificate),
		"broken chain": issue(intermediate, named("dave")),
	}, ca
}
