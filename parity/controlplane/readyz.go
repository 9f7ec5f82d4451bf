package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
)

// readyz returns how to ask a server once whether it is ready. Each question has a connection of its own: the last one may
// belong to a process that was killed.
func readyz(url string, config *tls.Config) func(context.Context) error {
	return func(ctx context.Context) error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		says, _ := io.ReadAll(resp.Body) // a part is better than nothing
		return fmt.Errorf("%s/readyz answers %s: %s", url, resp.Status, says)
	}
}
