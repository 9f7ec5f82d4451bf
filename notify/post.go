package notify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Poster sends messages of other formats to the receiver of a webhook, signed in the same way. It does not repeat them.
type Poster struct {
	client     *client
	secretFile string
}

// NewPoster returns a Poster. It checks the configuration as New does.
func NewPoster(receiver Webhook) (*Poster, error) {
	if receiver.Name == "" {
		return nil, errors.New("webhook: a name is required")
	}
	parsed, err := url.Parse(receiver.URL)
	if err == nil && parsed.Scheme == "http" && !isLoopback(parsed.Hostname()) {
		return nil, fmt.Errorf("webhook %s: the URL must be https, or http to a loopback address", receiver.Name)
	}
	client, err := newClient(receiver.HTTP, "", newTransport)
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", receiver.Name, err)
	}
	return &Poster{client: client, secretFile: receiver.SecretFile}, nil
}

// Post sends the body, which is JSON. Any answer but 2xx is an error.
func (p *Poster) Post(ctx context.Context, body []byte) error {
	header := map[string]string{}
	if p.secretFile != "" {
		secrets, err := readSecrets(p.secretFile)
		if err != nil {
			return err
		}
		header[SignatureHeader] = sign(secrets, body, time.Now())
	}
	return p.client.post(ctx, body, header)
}
