package nodeagent

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// certificatePeriod is how often a certificate file is looked at, at most. It is replaced long before it expires.
const certificatePeriod = time.Minute

// clientCertificate is the one with which the agent authenticates to the API server. It may be rotated.
type clientCertificate struct {
	data []byte
	path string

	mu        sync.Mutex // guards all below
	checkedAt time.Time
	modified  time.Time
	notAfter  time.Time
}

func newCertificate(config *rest.Config) *clientCertificate {
	return &clientCertificate{data: config.CertData, path: config.CertFile}
}

// expires returns when the certificate ends, or the zero time if there is none or it cannot be read.
func (c *clientCertificate) expires() time.Time {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.checkedAt.IsZero() && now.Sub(c.checkedAt) < certificatePeriod {
		return c.notAfter
	}
	c.checkedAt = now
	data := c.data
	if len(data) == 0 && c.path != "" {
		info, err := os.Stat(c.path)
		if err != nil || info.ModTime().Equal(c.modified) {
			return c.notAfter
		}
		if data, err = os.ReadFile(c.path); err != nil {
			return c.notAfter
		}
		c.modified = info.ModTime()
	}
	c.notAfter = endOf(data)
	return c.notAfter
}

// endOf returns when the first certificate of a PEM file ends, or the zero time.
func endOf(data []byte) time.Time {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if parsed, err := x509.ParseCertificate(block.Bytes); err == nil {
			return parsed.NotAfter
		}
	}
	return time.Time{}
}
