package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/heraldnode/herald/explain"
	"github.com/heraldnode/herald/internal/table"
	"github.com/heraldnode/herald/view"
)

const apiPrefix = "/herald/v1/"

// PodViews lists the pods of the node with what only the node knows. The parameters are those of the server.
func (c *Client) PodViews(ctx context.Context, parameters url.Values) (list view.PodViewList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"pods?"+parameters.Encode(), &list)
}

// PodView returns one pod.
func (c *Client) PodView(ctx context.Context, namespace, name string) (pod view.PodView, err error) {
	return pod, c.getJSON(ctx, apiPrefix+"pods/"+podPath(namespace, name), &pod)
}

// Node returns the node.
func (c *Client) Node(ctx context.Context) (node view.NodeView, err error) {
	return node, c.getJSON(ctx, apiPrefix+"node", &node)
}

// Explain answers a question about a pod.
func (c *Client) Explain(ctx context.Context, namespace, name string, question explain.Question) (answer view.Explanation, err error) {
	return answer, c.getJSON(ctx, apiPrefix+"explain/"+podPath(namespace, name)+"?q="+url.QueryEscape(string(question)), &answer)
}

// LoadHistory returns the load of the node or a pod over the last 24 hours. The parameters are those of the server.
func (c *Client) LoadHistory(ctx context.Context, parameters url.Values) (history view.LoadHistory, err error) {
	return history, c.getJSON(ctx, apiPrefix+"load?"+parameters.Encode(), &history)
}

// Sources lists the sources of pods.
func (c *Client) Sources(ctx context.Context) (list view.SourceList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"sources", &list)
}

// WatchViews calls handle with each event of a watch. It returns nil when ctx ends, and an error when the connection is closed or
// handle fails.
func (c *Client) WatchViews(ctx context.Context, parameters url.Values, handle func(view.WatchEvent) error) error {
	body, err := c.get(ctx, apiPrefix+"watch?"+parameters.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var event view.WatchEvent
		if err := decoder.Decode(&event); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return &UnreachableError{c.address, err}
		}
		if event.Type == watchError {
			return newWatchError(event)
		}
		if err := handle(event); err != nil {
			return err
		}
	}
}

// watchError is the type of the last event of a watch that failed. Its object is a Status.
const watchError view.WatchType = "ERROR"

func newWatchError(event view.WatchEvent) error {
	var status metav1.Status
	if err := json.Unmarshal(event.Object, &status); err != nil {
		return fmt.Errorf("invalid event of a watch: %w", err)
	}
	return &ResponseError{int(status.Code), table.Printable(status.Message)}
}

// RestartRequest is the body of POST /herald/v1/restart.
type RestartRequest struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Restart stops a container; the agent starts it again by the pod's rules. It returns when the container has stopped.
func (c *Client) Restart(ctx context.Context, request RestartRequest) (restart view.Restart, err error) {
	return restart, c.postJSON(ctx, apiPrefix+"restart", request, &restart)
}

// ProbeRequest is the body of POST /herald/v1/probe. An empty container or kind means all.
type ProbeRequest struct {
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container,omitempty"`
	Kind      explain.ProbeKind `json:"kind,omitempty"`
}

// Probe checks the probes of a pod once, now, without changing their results.
func (c *Client) Probe(ctx context.Context, request ProbeRequest) (list view.ProbeCheckList, err error) {
	return list, c.postJSON(ctx, apiPrefix+"probe", request, &list)
}

func podPath(namespace, name string) string {
	return url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

func (c *Client) getJSON(ctx context.Context, path string, value any) error {
	body, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	return c.decode(body, value)
}

func (c *Client) postJSON(ctx context.Context, path string, request, response any) error {
	content, err := json.Marshal(request)
	if err != nil {
		return err
	}
	body, err := c.do(ctx, http.MethodPost, path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	return c.decode(body, response)
}

func (c *Client) decode(body io.ReadCloser, value any) error {
	defer body.Close()
	if err := json.NewDecoder(body).Decode(value); err != nil {
		return fmt.Errorf("invalid response from %s, which may not be an agent: %w", c.address, err)
	}
	return nil
}

// DecodePodView returns the object of an event about a pod.
func DecodePodView(event view.WatchEvent) (pod view.PodView, err error) {
	if err := json.Unmarshal(event.Object, &pod); err != nil {
		return pod, fmt.Errorf("invalid event of a watch: %w", err)
	}
	return pod, nil
}
