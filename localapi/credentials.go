package localapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Credentials identify the server to clients, and a client as the owner of the node.
type Credentials struct {
	// Token is the bearer token of the owner.
	Token string
	// CertificatePEM is the server's certificate, which is its own authority.
	CertificatePEM []byte

	certificate tls.Certificate
}

const (
	tokenFile       = "token"
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	// validity is long because a kubeconfig contains the certificate.
	validity = 10 * 365 * 24 * time.Hour
)

// LoadCredentials reads the credentials of a directory.
func LoadCredentials(dir string) (*Credentials, error) {
	token, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	c := &Credentials{Token: strings.TrimSpace(string(token)), certificate: certificate}
	if c.Token == "" {
		return nil, fmt.Errorf("%s is empty (remove %s to create new credentials)", filepath.Join(dir, tokenFile), dir)
	}
	c.CertificatePEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	return c, nil
}

// CreateCredentials reads the credentials of a directory, or creates them if the directory does not exist. Only the owner can
// read them.
func CreateCredentials(dir string) (*Credentials, error) {
	credentials, err := LoadCredentials(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return credentials, err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".*") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("create credentials: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if err := writeCredentials(temporary); err != nil {
		return nil, fmt.Errorf("create credentials: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete: at least one file is missing
		return nil, fmt.Errorf("create credentials: %w", err)
	}
	if err := os.Rename(temporary, dir); err != nil {
		return nil, fmt.Errorf("create credentials: %w", err)
	}
	return LoadCredentials(dir)
}

func writeCredentials(dir string) error {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "herald"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity), // the clock may be set back
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, tokenFile), []byte(base64.RawURLEncoding.EncodeToString(secret)+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, certificateFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes}), 0o600),
	)
}

// TLSConfig returns the configuration of the server's listener.
func (c *Credentials) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.certificate}, NextProtos: []string{"h2", "http/1.1"},
	}
}

// Require answers requests without the token with 401.
func (c *Credentials) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !isBearer || subtle.ConstantTimeCompare([]byte(token), []byte(c.Token)) != 1 {
			writeError(w, apierrors.NewUnauthorized("Unauthorized: use the kubeconfig that `herald kubeconfig` prints"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
