package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// defaultListen is where an agent answers that was not told otherwise.
const defaultListen = "unix:///run/herald/herald.sock"

// addressVariable names the agent that get asks, where no flag does.
const addressVariable = "HERALD_SERVER"

func defaultServer() string {
	if address := os.Getenv(addressVariable); address != "" {
		return address
	}
	return defaultListen
}

// client asks one agent.
type client struct {
	address string
	http    http.Client
}

func newClient(address string) *client {
	c := &client{address: address}
	dial := func(ctx context.Context, network, target string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, target)
	}
	if socket, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	c.http.Transport = &http.Transport{DialContext: dial}
	return c
}

func (c *client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	host := "localhost"
	if !strings.HasPrefix(c.address, "unix://") {
		host = strings.TrimPrefix(c.address, "http://")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return nil, usage("the server's address %q: %w", c.address, err)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, failure{fmt.Errorf("no agent answers at %s: %w\nIs 'herald run' running? Name its address with --server or %s",
			c.address, err, addressVariable), exitUnreachable}
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return nil, fmt.Errorf("the agent at %s answers %s: %s", c.address, answer.Status, strings.TrimSpace(string(why)))
	}
	return answer.Body, nil
}

func (c *client) pods(ctx context.Context) ([]v1.Pod, error) {
	body, err := c.get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var list v1.PodList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	return list.Items, nil
}

// change is a watch event.
type change struct {
	Type   string
	Object v1.Pod
}

// watch calls back with every change until ctx ends or the agent does.
func (c *client) watch(ctx context.Context, each func(change) error) error {
	body, err := c.get(ctx, "/pods?watch=true")
	if err != nil {
		return err
	}
	defer body.Close()
	for lines := json.NewDecoder(body); ; {
		var next change
		if err := lines.Decode(&next); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the agent at %s has ended: %w", c.address, err)
		}
		if err := each(next); err != nil {
			return err
		}
	}
}
