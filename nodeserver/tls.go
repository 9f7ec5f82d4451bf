package nodeserver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TLS configures the connections of a Server.
type TLS struct {
	// GetCertificate returns the serving certificate of a handshake. Required.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs returns the authorities whose certificates clients may show. They are named in the handshake, and verified by the
	// filter of Config.Require. Nil asks for no certificate.
	ClientCAs func() *x509.CertPool
	// MinVersion is the least version, like VersionTLS13. Defaults to VersionTLS12.
	MinVersion string
	// CipherSuites are names of suites for versions before 1.3. Defaults to those of Go.
	CipherSuites []string
}

// versions by the names of KubeletConfiguration.
var versions = map[string]uint16{
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
}

// ParseTLSVersion returns the version of a name like VersionTLS12, and the default for "".
func ParseTLSVersion(name string) (uint16, error) {
	version, found := versions[cmp.Or(name, "VersionTLS12")]
	if !found {
		return 0, fmt.Errorf("unknown TLS version %q: must be one of %s", name, strings.Join(slices.Sorted(maps.Keys(versions)), ", "))
	}
	return version, nil
}

// ParseCipherSuites returns the suites of names like TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
func ParseCipherSuites(names []string) ([]uint16, error) {
	known := map[string]uint16{}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[suite.Name] = suite.ID
	}
	var suites []uint16
	for _, name := range names {
		suite, found := known[name]
		if !found {
			return nil, fmt.Errorf("unknown cipher suite %q", name)
		}
		suites = append(suites, suite)
	}
	return suites, nil
}

func (c *TLS) check() error {
	if _, err := ParseTLSVersion(c.MinVersion); err != nil {
		return fmt.Errorf("nodeserver.Config: %w", err)
	}
	if _, err := ParseCipherSuites(c.CipherSuites); err != nil {
		return fmt.Errorf("nodeserver.Config: %w", err)
	}
	return nil
}

// config returns the configuration of connections. The authorities are those of the time of the handshake (SRV-5).
func (c *TLS) config() *tls.Config {
	version, _ := ParseTLSVersion(c.MinVersion) // checked by New
	suites, _ := ParseCipherSuites(c.CipherSuites)
	config := &tls.Config{
		MinVersion: version, CipherSuites: suites, GetCertificate: c.GetCertificate,
		// Also in the clone below: without it, clients would not get HTTP/2 (SRV-7).
		NextProtos: []string{"h2", "http/1.1"},
	}
	if c.ClientCAs == nil {
		return config
	}
	config.ClientAuth = tls.RequestClientCert
	perHandshake := config.Clone()
	perHandshake.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		clone := config.Clone()
		clone.ClientCAs = c.ClientCAs()
		return clone, nil
	}
	return perHandshake
}
