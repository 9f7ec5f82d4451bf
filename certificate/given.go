package certificate

import (
	"crypto/tls"

	"k8s.io/client-go/rest"
)

// Given returns the certificate of a client configuration, or nil if it has none.
func Given(config *rest.Config) (*tls.Certificate, error) {
	cert, key := config.CertData, config.KeyData
	var err error
	if len(cert) == 0 && config.CertFile != "" {
		if cert, err = readFile(config.CertFile); err != nil {
			return nil, err
		}
	}
	if len(key) == 0 && config.KeyFile != "" {
		if key, err = readFile(config.KeyFile); err != nil {
			return nil, err
		}
	}
	if len(cert) == 0 || len(key) == 0 {
		return nil, nil //nolint:nilnil // a configuration without certificate is not an error
	}
	return newPair(cert, key)
}
