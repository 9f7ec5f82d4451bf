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
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/probe/judge"
)

const maxRedirects = 10

// get is PRB-25. A failure's message never has the body: it may hold secrets.
func (w *web) get(ctx context.Context, action *v1.HTTPGetAction, target Target) Outcome {
	request, err := newRequest(ctx, action, target)
	if err != nil {
		return unknown(err)
	}
	client := http.Client{Transport: w, CheckRedirect: followSameHost}
	response, err := client.Do(request)
	if err != nil {
		return noAnswer(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := start(response)
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)):
		return failed(fmt.Sprintf("Get %q: no end of the body: %v", request.URL, context.DeadlineExceeded))
	case err != nil:
		return unknown(fmt.Errorf("read body of %q: %w", request.URL, err))
	case response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest:
		return failed(fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode))
	case response.StatusCode >= http.StatusMultipleChoices:
		return Outcome{Result: judge.Success, Warning: true, Message: "Probe terminated redirects, Response body: " + body}
	default:
		return Outcome{Result: judge.Success}
	}
}

// start reads at most maxOutput bytes of the body, and returns them if they are shown to somebody.
func start(response *http.Response) (string, error) {
	body := io.LimitReader(response.Body, maxOutput)
	if response.StatusCode/100 == 3 {
		shown, err := io.ReadAll(body)
		return string(shown), err
	}
	_, err := io.Copy(io.Discard, body)
	return "", err
}

// followSameHost is PRB-26: who is sent elsewhere does not go, so that nobody can send a node's agent anywhere.
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
	port, err := portOf(action.Port, target.Container)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(action.Path)
	if err != nil { // too late to refuse it
		to = &url.URL{Path: action.Path}
	}
	to.Scheme = "http"
	if action.Scheme != "" {
		to.Scheme = strings.ToLower(string(action.Scheme))
	}
	to.Host = net.JoinHostPort(hostOf(action.Host, target), strconv.Itoa(int(port)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("container %s: httpGet: %w", target.Container.Name, err)
	}
	request.Header = headers(action.HTTPHeaders)
	request.Host = request.Header.Get("Host")
	return request, nil
}

// headers are the spec's, with what is said where it says nothing. An empty Accept asks for none.
func headers(given []v1.HTTPHeader) http.Header {
	all := make(http.Header, len(given)+2)
	for _, header := range given {
		all.Add(header.Name, header.Value)
	}
	if _, said := all["User-Agent"]; !said {
		all["User-Agent"] = []string{userAgent}
	}
	switch accept, said := all["Accept"]; {
	case !said:
		all["Accept"] = []string{"*/*"}
	case accept[0] == "":
		all.Del("Accept")
	}
	return all
}
