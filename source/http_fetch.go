package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/heraldnode/herald/source/manifest"
)

// validator is how a server recognises a version of what it sent.
type validator struct {
	etag, modified string
}

// reply is what came of one request.
type reply struct {
	unchanged bool // the server says that the body with our validator is still the newest
	body      []byte
	validator validator
}

// fetch reads the URL. The body is cut off before anything looks at it, and the clock covers all of it, so that neither
// a flood nor a trickle can hold the agent.
func (h *HTTP) fetch(ctx context.Context) (reply, error) {
	client, err := h.client.get(h.config)
	if err != nil {
		return reply{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url.String(), nil)
	if err != nil {
		return reply{}, errors.New("cannot make a request of the URL")
	}
	if h.config.Header != nil {
		request.Header = h.config.Header.Clone()
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	h.validator.ask(request.Header)
	response, err := client.Do(request)
	if err != nil {
		return reply{}, fmt.Errorf("cannot be read: %w", withoutURL(err))
	}
	defer response.Body.Close()
	return h.readReply(response)
}

func (h *HTTP) readReply(response *http.Response) (reply, error) {
	switch {
	case response.StatusCode == http.StatusNotModified && h.validator != validator{}:
		return reply{unchanged: true}, nil
	case response.StatusCode != http.StatusOK:
		return reply{}, fmt.Errorf("the server answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	case response.ContentLength > manifest.MaxBytes:
		return reply{}, errBodyTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, manifest.MaxBytes+1))
	if err != nil {
		return reply{}, fmt.Errorf("cannot be read to its end: %w", withoutURL(err))
	}
	if len(body) > manifest.MaxBytes {
		return reply{}, errBodyTooLarge
	}
	return reply{body: body, validator: validator{
		etag: response.Header.Get("ETag"), modified: response.Header.Get("Last-Modified"),
	}}, nil
}

var errBodyTooLarge = fmt.Errorf("the server sends more than the %d bytes that a manifest may have", manifest.MaxBytes)

func (v validator) ask(header http.Header) {
	if v.etag != "" {
		header.Set("If-None-Match", v.etag)
	}
	if v.modified != "" {
		header.Set("If-Modified-Since", v.modified)
	}
}

// withoutURL takes the URL out of an error: its query may be secret, and the problem names the place anyway.
func withoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
