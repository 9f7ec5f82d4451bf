package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/heraldnode/herald/history"
	"github.com/heraldnode/herald/server"
)

const historyPath = "/herald/v1/history?"

// History returns a page of the history, newest first. The parameters are those of the server.
func (c *Client) History(ctx context.Context, parameters url.Values) (server.HistoryList, error) {
	body, err := c.get(ctx, historyPath+parameters.Encode())
	if err != nil {
		return server.HistoryList{}, err
	}
	defer body.Close()
	var list server.HistoryList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return server.HistoryList{}, fmt.Errorf("invalid response from %s, which may not be an agent: %w", c.address, err)
	}
	return list, nil
}

// Events returns a page of the records of Kubernetes events, newest first.
func (c *Client) Events(ctx context.Context, parameters url.Values) (list server.HistoryList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"events?"+parameters.Encode(), &list)
}

// FollowHistory calls handle with each new record. It returns nil when ctx ends, and an error when the connection is closed or
// handle fails.
func (c *Client) FollowHistory(ctx context.Context, parameters url.Values, handle func(history.Record) error) error {
	parameters.Set("follow", "true")
	body, err := c.get(ctx, historyPath+parameters.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var record history.Record
		if err := decoder.Decode(&record); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return &UnreachableError{c.address, err}
		}
		if err := handle(record); err != nil {
			return err
		}
	}
}
