package source

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// client makes requests with the certificates that are in the files now. One goroutine uses it.
type client struct {
	http *http.Client
	pems [3][]byte // what it was made of: authorities, certificate, key
}

func (c *client) get(config HTTPConfig) (*http.Client, error) {
	var pems [3][]byte
	for i, path := range [...]string{config.CAFile, config.CertFile, config.KeyFile} {
		if path == "" {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot be read without its certificates: %w", err)
		}
		pems[i] = data
	}
	if c.http != nil && c.isMadeOf(pems) {
		return c.http, nil
	}
	trust, err := trustOf(config, pems)
	if err != nil {
		return nil, err
	}
	c.close()
	c.pems = pems
	c.http = &http.Client{
		Timeout:       config.Timeout,
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			// No proxy from the environment: it would be one more that must be trusted.
			Proxy:                  nil,
			TLSClientConfig:        trust,
			TLSHandshakeTimeout:    config.Timeout,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           1,
			IdleConnTimeout:        time.Minute,
			ForceAttemptHTTP2:      true,
			// A connection that leads nowhere any more would be kept until the kernel gives it up, a quarter of an hour (F3).
			HTTP2: &http.HTTP2Config{SendPingTimeout: config.Timeout, PingTimeout: config.Timeout},
		},
	}
	return c.http, nil
}

func (c *client) isMadeOf(pems [3][]byte) bool {
	for i := range pems {
		if !bytes.Equal(c.pems[i], pems[i]) {
			return false
		}
	}
	return true
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

func trustOf(config HTTPConfig, pems [3][]byte) (*tls.Config, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: config.RootCAs}
	if authorities := pems[0]; authorities != nil {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("cannot be read without its certificates: %s holds none in PEM", config.CAFile)
		}
	}
	if pems[1] != nil {
		pair, err := tls.X509KeyPair(pems[1], pems[2])
		if err != nil {
			return nil, fmt.Errorf("cannot be read without its certificates: %s and %s: %w",
				config.CertFile, config.KeyFile, err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return trust, nil
}
