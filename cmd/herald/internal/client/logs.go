package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/internal/table"
)

// Log copies the log of a container of the pod to out. It returns a *ResponseError if there is none, and an *UnreachableError if the
// agent closed the connection before the end.
func (c *Client) Log(ctx context.Context, pod *v1.Pod, options *v1.PodLogOptions, out io.Writer) error {
	path := "/containerLogs/" + url.PathEscape(pod.Namespace) + "/" + url.PathEscape(pod.Name) + "/" + url.PathEscape(options.Container)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host+path+"?"+logParameters(options).Encode(), nil)
	if err != nil {
		return fmt.Errorf("invalid address %q: must be unix:///path or 127.0.0.1:port", c.address)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return &UnreachableError{c.address, err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		return &ResponseError{response.StatusCode, table.Printable(strings.TrimSpace(string(message)))}
	}
	reading := &errorReader{Reader: response.Body}
	_, err = io.Copy(out, reading)
	if reading.err != nil && ctx.Err() == nil {
		return &UnreachableError{c.address, reading.err}
	}
	return err
}

// errorReader tells errors of the reader from those of a writer that the content is copied to.
type errorReader struct {
	io.Reader
	err error
}

func (r *errorReader) Read(buffer []byte) (int, error) {
	n, err := r.Reader.Read(buffer)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// logParameters returns the query of the kubelet for the options.
func logParameters(options *v1.PodLogOptions) url.Values {
	parameters := url.Values{}
	for name, value := range map[string]bool{
		"follow": options.Follow, "previous": options.Previous, "timestamps": options.Timestamps,
	} {
		if value {
			parameters.Set(name, "true")
		}
	}
	for name, value := range map[string]*int64{
		"tailLines": options.TailLines, "limitBytes": options.LimitBytes, "sinceSeconds": options.SinceSeconds,
	} {
		if value != nil {
			parameters.Set(name, strconv.FormatInt(*value, 10))
		}
	}
	if options.SinceTime != nil {
		parameters.Set("sinceTime", options.SinceTime.UTC().Format(time.RFC3339))
	}
	return parameters
}
