package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/probe/judge"
)

const maxRedirects = 10

// checkHTTP is PRB-25. No message contains the body, which may hold secrets, except for that in redirectMessage.
func (t *transport) checkHTTP(ctx context.Context, action *v1.HTTPGetAction, target Target) Outcome {
	request, err := newRequest(ctx, action, target)
	if err != nil {
		return newError(err)
	}
	client := http.Client{Transport: t, CheckRedirect: followSameHost}
	response, err := client.Do(request)
	if err != nil {
		return newDialOutcome(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput))
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)):
		return newFailure(fmt.Sprintf("Get %q: read body: %v", request.URL, context.DeadlineExceeded))
	case err != nil:
		return newError(fmt.Errorf("read body of %q: %w", request.URL, err))
	case response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest:
		return newFailure(fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode))
	case response.StatusCode >= http.StatusMultipleChoices:
		return Outcome{Result: judge.Success, Warning: true, Message: redirectMessage(response.Header.Get("Location"), string(body))}
	default:
		return Outcome{Result: judge.Success}
	}
}

var redirectNotice = regexp.MustCompile(`^<a href="([^"]*)">[A-Za-z ]+</a>\.$`)

// redirectMessage contains the body if it is only the notice of many servers that names the other host. The kubelet publishes every
// body.
func redirectMessage(location, body string) string {
	const message = "Probe terminated redirects"
	body = strings.TrimSpace(body)
	notice := redirectNotice.FindStringSubmatch(body)
	target, err := url.Parse(location)
	if err != nil || notice == nil || notice[1] != location || location != target.Scheme+"://"+target.Host+"/" {
		return message
	}
	return message + ", Response body: " + body
}

// followSameHost is PRB-26: redirects to another host are not followed, so that a pod cannot send the node's agent anywhere.
func followSameHost(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// newRequest is PRB-24.
func newRequest(ctx context.Context, action *v1.HTTPGetAction, target Target) (*http.Request, error) {
	port, err := resolvePort(action.Port, target.Container)
	if err != nil {
		return nil, err
	}
	requestURL, err := url.Parse(action.Path)
	if err != nil { // too late to reject the pod
		requestURL = &url.URL{Path: action.Path}
	}
	requestURL.Scheme = "http"
	if action.Scheme != "" {
		requestURL.Scheme = strings.ToLower(string(action.Scheme))
	}
	requestURL.Host = net.JoinHostPort(targetHost(action.Host, target), strconv.Itoa(int(port)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, requestURL.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("container %s: httpGet: %w", target.Container.Name, err)
	}
	request.Header = newHeader(action.HTTPHeaders)
	request.Host = request.Header.Get("Host")
	return request, nil
}

// newHeader returns the spec's headers and defaults for User-Agent and Accept. An empty Accept removes the default.
func newHeader(specHeaders []v1.HTTPHeader) http.Header {
	header := make(http.Header, len(specHeaders)+2)
	for _, specHeader := range specHeaders {
		header.Add(specHeader.Name, specHeader.Value)
	}
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{userAgent}
	}
	switch accept, ok := header["Accept"]; {
	case !ok:
		header["Accept"] = []string{"*/*"}
	case accept[0] == "":
		header.Del("Accept")
	}
	return header
}

// validateRequest reports why a request cannot be sent as the spec defines it. Sent anyway, it would be a different request:
// an invalid header could become none or several, and a request without a host would reach the node itself (PRB-30).
func validateRequest(request *http.Request) error {
	switch scheme := request.URL.Scheme; {
	case scheme != "http" && scheme != "https":
		return fmt.Errorf("invalid scheme %q: want http or https", scheme)
	case request.URL.Host == "":
		return fmt.Errorf("%q has no host: the path must start with a slash", request.URL)
	}
	for name, values := range request.Header {
		if name == "" || strings.ContainsFunc(name, isNotTokenRune) {
			return fmt.Errorf("invalid header name %q", name)
		}
		for _, value := range values {
			if strings.ContainsFunc(value, isControl) {
				return fmt.Errorf("header %s: invalid value %q", name, value)
			}
		}
	}
	return nil
}

// isNotTokenRune reports whether the character is not allowed in a header name (RFC 9110, 5.6.2).
func isNotTokenRune(r rune) bool {
	alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
