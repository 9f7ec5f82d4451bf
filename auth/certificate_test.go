package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heraldnode/herald/auth"
)

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue issues a certificate for a client that is valid now, after changes by modify. A nil authority signs it with its own key.
func (a *authority) issue(t *testing.T, modify func(*x509.Certificate)) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	modify(template)
	parent, parentKey := template, key
	if a != nil {
		parent, parentKey = a.certificate, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func asCA(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName, c.IsCA, c.KeyUsage, c.ExtKeyUsage = name, true, x509.KeyUsageCertSign, nil
	}
}

func asUser(name string, groups ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name, Organization: groups} }
}

// clientCAs is a pool that tests replace.
type clientCAs struct{ atomic.Pointer[x509.CertPool] }

func (c *clientCAs) Current() *x509.CertPool { return c.Load() }

// serveTLS starts a server that asks for client certificates and does not verify them, and returns a function that sends a request
// with a certificate and its intermediates.
func serveTLS(t *testing.T, handler http.Handler) func(client *http.Client, path, token string) (int, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return func(client *http.Client, path, token string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
}

// newClient returns a client that shows the first certificate, with the others as intermediates. It shows it whatever authorities the
// server names.
func newClient(t *testing.T, chain ...*authority) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the server's certificate is not the subject
	if len(chain) > 0 {
		certificate := tls.Certificate{PrivateKey: chain[0].key}
		for _, element := range chain {
			certificate.Certificate = append(certificate.Certificate, element.certificate.Raw)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestSRV11_Certificates(t *testing.T) {
	var none *authority
	ca, otherCA := none.issue(t, asCA("ca")), none.issue(t, asCA("ca"))
	intermediate := ca.issue(t, asCA("intermediate"))
	admin := asUser("admin", "g1", "g2")
	with := func(modify ...func(*x509.Certificate)) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, m := range modify {
				m(c)
			}
		}
	}
	uid := func(values ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			for _, value := range values {
				c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{
					Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: value,
				})
			}
		}
	}
	const unauthorized = "Unauthorized"
	tests := map[string]struct {
		chain         []*authority
		want          string
		wantAnonymous string // if anonymous requests are accepted
	}{
		"valid":              {[]*authority{ca.issue(t, admin)}, "admin  g1,g2,system:authenticated", ""},
		"none":               {nil, unauthorized, "system:anonymous  system:unauthenticated"},
		"other CA":           {[]*authority{otherCA.issue(t, admin)}, unauthorized, unauthorized},
		"self-signed":        {[]*authority{none.issue(t, admin)}, unauthorized, unauthorized},
		"expired":            {[]*authority{ca.issue(t, with(admin, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))}, unauthorized, unauthorized},
		"not yet valid":      {[]*authority{ca.issue(t, with(admin, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }))}, unauthorized, unauthorized},
		"no common name":     {[]*authority{ca.issue(t, asUser("", "system:masters"))}, unauthorized, "system:anonymous  system:unauthenticated"},
		"intermediate":       {[]*authority{intermediate.issue(t, admin), intermediate}, "admin  g1,g2,system:authenticated", ""},
		"intermediate lacks": {[]*authority{intermediate.issue(t, admin)}, unauthorized, unauthorized},
		"for servers": {[]*authority{ca.issue(t, with(admin, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}))}, unauthorized, unauthorized},
		"with UID":        {[]*authority{ca.issue(t, with(admin, uid("u1")))}, "admin u1 g1,g2,system:authenticated", ""},
		"with two UIDs":   {[]*authority{ca.issue(t, with(admin, uid("u1", "u2")))}, unauthorized, unauthorized},
		"with empty UID":  {[]*authority{ca.issue(t, with(admin, uid("")))}, unauthorized, unauthorized},
		"signed by user":  {[]*authority{ca.issue(t, admin).issue(t, asUser("other")), ca.issue(t, admin)}, unauthorized, unauthorized},
		"CA as a client":  {[]*authority{none.issue(t, asCA("ca"))}, unauthorized, unauthorized},
		"reserved name":   {[]*authority{ca.issue(t, asUser("system:anonymous"))}, "system:anonymous  ", ""},
		"reserved groups": {[]*authority{ca.issue(t, asUser("a", "system:unauthenticated"))}, "a  system:unauthenticated", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cas := &clientCAs{}
			cas.Store(ca.pool())
			for _, anonymous := range []bool{false, true} {
				request := serveTLS(t, newHandler(t, auth.Config{ClientCAs: cas, Mode: auth.ModeAlwaysAllow, Anonymous: anonymous}))
				want := test.want
				if anonymous && test.wantAnonymous != "" {
					want = test.wantAnonymous
				}
				if code, body := request(newClient(t, test.chain...), "/pods", ""); body != want {
					t.Errorf("anonymous %v: got %d %q, want %q", anonymous, code, body, want)
				}
			}
		})
	}
}

// TestSRV11_CredentialID checks that the API server learns which certificate it was, and that answers are cached per certificate.
func TestSRV11_CredentialID(t *testing.T) {
	var none *authority
	ca := none.issue(t, asCA("ca"))
	cas := &clientCAs{}
	cas.Store(ca.pool())
	server := newAPIServer()
	server.allowed["admin get pods"] = true
	request := serveTLS(t, newHandler(t, auth.Config{API: server, ClientCAs: cas}))
	for range 2 {
		admin := ca.issue(t, asUser("admin"))
		for range 2 {
			if code, body := request(newClient(t, admin), "/pods", ""); code != 200 {
				t.Errorf("got %d %q", code, body)
			}
		}
		hash := sha256.Sum256(admin.certificate.Raw)
		got := server.specs[len(server.specs)-1].Extra["authentication.kubernetes.io/credential-id"]
		if len(got) != 1 || got[0] != "X509SHA256="+hex.EncodeToString(hash[:]) {
			t.Errorf("got %v", got)
		}
	}
	if _, accesses := server.asked(); len(accesses) != 2 {
		t.Errorf("got %d reviews of two certificates", len(accesses))
	}
}

// TestSRV11_ReplacedCA checks that another CA file takes effect for the next request, also on a connection that is open.
func TestSRV11_ReplacedCA(t *testing.T) {
	var none *authority
	oldCA, newCA := none.issue(t, asCA("old")), none.issue(t, asCA("new"))
	cas := &clientCAs{}
	request := serveTLS(t, newHandler(t, auth.Config{ClientCAs: cas, Mode: auth.ModeAlwaysAllow}))
	oldClient, newClient := newClient(t, oldCA.issue(t, asUser("old"))), newClient(t, newCA.issue(t, asUser("new")))
	both := x509.NewCertPool()
	both.AddCert(oldCA.certificate)
	both.AddCert(newCA.certificate)
	for _, step := range []struct {
		name             string
		pool             *x509.CertPool
		wantOld, wantNew int
	}{
		{"no authorities yet", nil, 401, 401}, {"the old", oldCA.pool(), 200, 401}, {"both", both, 200, 200},
		{"the new", newCA.pool(), 401, 200}, {"an empty file", x509.NewCertPool(), 401, 401},
	} {
		cas.Store(step.pool)
		if code, _ := request(oldClient, "/pods", ""); code != step.wantOld {
			t.Errorf("%s: old certificate: got %d, want %d", step.name, code, step.wantOld)
		}
		if code, _ := request(newClient, "/pods", ""); code != step.wantNew {
			t.Errorf("%s: new certificate: got %d, want %d", step.name, code, step.wantNew)
		}
	}
}

// TestSRV10_Order checks that the certificate comes before the token, and that a valid token makes up for a wrong certificate.
func TestSRV10_Order(t *testing.T) {
	var none *authority
	ca := none.issue(t, asCA("ca"))
	cas := &clientCAs{}
	cas.Store(ca.pool())
	server := newAPIServer()
	request := serveTLS(t, newHandler(t, auth.Config{API: server, ClientCAs: cas, ReviewTokens: true, Mode: auth.ModeAlwaysAllow, Anonymous: true}))
	valid, wrong := newClient(t, ca.issue(t, asUser("admin"))), newClient(t, none.issue(t, asUser("admin")))
	if _, body := request(valid, "/pods", "alice"); body != "admin  system:authenticated" {
		t.Errorf("both valid: got %q", body)
	}
	if tokens, _ := server.asked(); len(tokens) > 0 {
		t.Errorf("the token was reviewed although the certificate is valid")
	}
	if _, body := request(wrong, "/pods", "alice"); body != "alice u1 readers,system:authenticated" {
		t.Errorf("wrong certificate, valid token: got %q", body)
	}
	if code, _ := request(wrong, "/pods", "mallory"); code != 401 {
		t.Errorf("both wrong: got %d", code)
	}
	if _, body := request(valid, "/pods", "mallory"); body != "admin  system:authenticated" {
		t.Errorf("valid certificate, wrong token: got %q", body)
	}
}
