package source

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// HTTPConfig says which URL static pods are read from.
type HTTPConfig struct {
	// URL of one pod or a list of pods. Required. It must be https, unless its host is this machine.
	URL string
	// NodeName is the name of the node that runs the pods. Required.
	NodeName string
	// Period is how often the URL is read. Default 20 s.
	Period time.Duration
	// Timeout is for one reading, from the connection to the last byte. Default 10 s.
	Timeout time.Duration
	// Header is sent with every request. It is never logged: it may hold credentials. Default: none.
	Header http.Header
	// RootCAs are the authorities that may vouch for the server. Default: the system's, or those of CAFile.
	RootCAs *x509.CertPool
	// CAFile has the authorities' certificates, CertFile and KeyFile the agent's own; all PEM, read again before each
	// request. CAFile goes not with RootCAs; CertFile and KeyFile go together. Default: none.
	CAFile, CertFile, KeyFile string
	// AllowInsecure permits plain http to other machines: whoever is in between can then start any pod. Default false.
	AllowInsecure bool
	// Decode reads what the server sends. Default manifest.Decode.
	Decode Decoder
}

// HTTP reads static pods from a URL. Run is called once; its goroutine owns all fields.
type HTTP struct {
	config HTTPConfig
	url    *url.URL
	shown  string // the URL without what may be secret
	client client

	applied   [sha256.Size]byte // the body that the last set came from; the zero value for none
	validator validator         // of that body
}

// NewHTTP checks the configuration.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	target, err := checkURL(config.URL, config.AllowInsecure)
	switch {
	case err != nil:
		return nil, fmt.Errorf("source.HTTPConfig.URL: %w", err)
	case config.NodeName == "":
		return nil, fmt.Errorf("source.HTTPConfig.Node: required")
	case config.Period < 0:
		return nil, fmt.Errorf("source.HTTPConfig.Period: %v is negative", config.Period)
	case config.Timeout < 0:
		return nil, fmt.Errorf("source.HTTPConfig.Timeout: %v is negative", config.Timeout)
	case config.RootCAs != nil && config.CAFile != "":
		return nil, fmt.Errorf("source.HTTPConfig.CAFile: not together with RootCAs")
	case (config.CertFile == "") != (config.KeyFile == ""):
		return nil, fmt.Errorf("source.HTTPConfig.CertFile and KeyFile: one is missing")
	}
	if config.Period == 0 {
		config.Period = 20 * time.Second
	}
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.Decode == nil {
		config.Decode = manifest.Decode
	}
	config.Header = config.Header.Clone()
	return &HTTP{config: config, url: target, shown: display(target)}, nil
}

// Name implements Source.
func (h *HTTP) Name() podid.Source { return podid.HTTP }

// Run implements Source. Whatever goes wrong, the last good set stays (CFG-26, BUG-21).
func (h *HTTP) Run(ctx context.Context, sink Sink) error {
	defer h.client.close()
	ticker := time.NewTicker(h.config.Period)
	defer ticker.Stop()
	for {
		problems := h.poll(ctx, sink)
		if ctx.Err() != nil {
			return nil
		}
		sink.Report(problems)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// poll reads the URL once. A set is told only when the body is another one than that of the last set that was told, so
// that the same good body after a bad one is no change, and after an agent's start is one (CFG-28).
func (h *HTTP) poll(ctx context.Context, sink Sink) []Problem {
	reply, err := h.fetch(ctx)
	if err != nil {
		return []Problem{{Location: h.shown, Message: err.Error()}}
	}
	digest := sha256.Sum256(reply.body)
	switch {
	case reply.unchanged:
		return nil
	case digest == h.applied:
		h.validator = reply.validator
		return nil
	}
	pods, err := h.config.Decode(reply.body, manifest.Origin{Source: podid.HTTP, Location: h.shown, NodeName: h.config.NodeName})
	if errors.Is(err, manifest.ErrEmpty) {
		// The kubelet takes it for "no pods" and ends them all (CFG-27); a server's mishap must not do that.
		return []Problem{{Location: h.shown, Message: "the server sent an empty document, so its pods stay as they are; " +
			"a list with `items: []` is what removes them all"}}
	}
	if err != nil {
		return problemsOf(h.shown, err)
	}
	sink.Replace(pods)
	h.applied, h.validator = digest, reply.validator
	return nil
}
