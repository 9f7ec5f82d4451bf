package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/heraldnode/herald/certificate/rotation"
)

// The self-signed pair, with the kubelet's names.
const (
	selfSignedCert = "kubelet.crt"
	selfSignedKey  = "kubelet.key"

	selfSignedLife = 365 * 24 * time.Hour
	// selfSignedRetry is how long a failed write is not repeated. The pair is used meanwhile.
	selfSignedRetry = time.Minute
)

// SelfSigned is the serving certificate of a node that has no other: kubelet.crt and kubelet.key in a directory, valid for the node's
// name and addresses. It is made anew at 80 % of its life and when an address is missing (SRV-4); one that is not self-signed, because
// an operator put it there, is left as it is. It is safe for concurrent use.
type SelfSigned struct {
	config SelfSignedConfig

	// sem has capacity 1 and is held across I/O. It guards all below.
	sem     chan struct{}
	pair    *tls.Certificate
	savedAt time.Time // of the last attempt
	unsaved bool      // the pair is not on disk
}

// SelfSignedConfig configures a SelfSigned. All fields but Logger are required.
type SelfSignedConfig struct {
	// Dir is the directory of the pair. It is created with mode 0700.
	Dir string
	// NodeName is the name of the node.
	NodeName string
	// Names returns the names and addresses of the node, of now. It must not block.
	Names func() (names []string, addresses []netip.Addr)
	// Logger receives messages. Default: none.
	Logger *slog.Logger
}

// NewSelfSigned returns the pair of the directory. It touches no file before the first handshake.
func NewSelfSigned(config SelfSignedConfig) (*SelfSigned, error) {
	if config.Dir == "" || config.NodeName == "" || config.Names == nil {
		return nil, errors.New("certificate.SelfSignedConfig: Dir, NodeName and Names are required")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &SelfSigned{config: config, sem: make(chan struct{}, 1)}, nil
}

// GetCertificate implements Serving. It makes a new pair if the current one is missing, old, or lacks a name.
func (s *SelfSigned) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	names, addresses := s.config.Names()
	wanted := rotation.Template{DNSNames: append([]string{s.config.NodeName}, names...), IPs: addresses}
	s.sem <- struct{}{}
	defer func() { <-s.sem }()
	if s.pair == nil {
		s.pair = s.load()
	}
	now := time.Now()
	reason := s.reasonLocked(wanted, now)
	if reason != "" {
		pair, err := newSelfSigned(s.config.NodeName, wanted, now)
		if err != nil {
			return nil, fmt.Errorf("create self-signed certificate: %w", err)
		}
		s.config.Logger.Info("Created self-signed serving certificate", "reason", reason, "names", pair.Leaf.DNSNames,
			"addresses", pair.Leaf.IPAddresses, "expires", pair.Leaf.NotAfter)
		s.pair, s.unsaved, s.savedAt = pair, true, time.Time{}
	}
	if s.unsaved && now.Sub(s.savedAt) >= selfSignedRetry {
		s.saveLocked(now)
	}
	return s.pair, nil
}

// reasonLocked returns why a new pair is needed, or "".
func (s *SelfSigned) reasonLocked(wanted rotation.Template, now time.Time) string {
	switch {
	case s.pair == nil:
		return "there is none"
	case !isSelfMade(s.pair.Leaf):
		return "" // an operator's: renewed by whoever made it
	case !now.Before(rotation.At(s.pair.Leaf, 0.8)):
		return "it expires at " + formatTime(s.pair.Leaf.NotAfter)
	default:
		return wanted.MissingNames(s.pair.Leaf)
	}
}

// selfMadeName is the subject of the issuer of the kubelet's and of Herald's self-signed certificates.
var selfMadeName = regexp.MustCompile(`^.+(-ca)?@[0-9]+$`)

func isSelfMade(leaf *x509.Certificate) bool { return selfMadeName.MatchString(leaf.Issuer.CommonName) }

// load returns the pair on disk, or nil if there is none that can be used.
func (s *SelfSigned) load() *tls.Certificate {
	cert, certErr := readFile(filepath.Join(s.config.Dir, selfSignedCert))
	key, keyErr := readFile(filepath.Join(s.config.Dir, selfSignedKey))
	err := errors.Join(certErr, keyErr)
	var pair *tls.Certificate
	if err == nil {
		pair, err = newPair(cert, key)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.config.Logger.Warn("Failed to read self-signed serving certificate", "dir", s.config.Dir, "err", err)
	}
	return pair
}

// saveLocked writes the pair, the key first: a pair that does not match is made anew.
func (s *SelfSigned) saveLocked(now time.Time) {
	s.savedAt = now
	var certs bytes.Buffer
	for _, der := range s.pair.Certificate {
		_ = pem.Encode(&certs, &pem.Block{Type: certutil.CertificateBlockType, Bytes: der}) // a buffer never fails
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(s.pair.PrivateKey)
	if err == nil {
		err = os.MkdirAll(s.config.Dir, 0o700)
	}
	if err == nil {
		err = replaceFile(filepath.Join(s.config.Dir, selfSignedKey), key)
	}
	if err == nil {
		err = replaceFile(filepath.Join(s.config.Dir, selfSignedCert), certs.Bytes())
	}
	if s.unsaved = err != nil; err != nil {
		s.config.Logger.Error("Failed to save self-signed serving certificate; clients see another one after a restart", "err", err)
	}
}

// newSelfSigned returns a pair that is its own authority.
func newSelfSigned(nodeName string, wanted rotation.Template, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const serialBits = 120
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s@%d", nodeName, now.Unix())},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(selfSignedLife), // before now: clocks differ
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:        true, BasicConstraintsValid: true, // clients may trust the file itself
		DNSNames: rotation.Unique(wanted.DNSNames), IPAddresses: toIPs(wanted.IPs),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func toIPs(addresses []netip.Addr) []net.IP {
	var ips []net.IP
	for _, address := range rotation.Unique(addresses) {
		ips = append(ips, address.Unmap().AsSlice())
	}
	return ips
}
