package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/view"
)

// Alerts lists alerts, worst first. The parameters are those of the server.
func (c *Client) Alerts(ctx context.Context, parameters url.Values) (list view.AlertList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"alerts?"+parameters.Encode(), &list)
}

// Rules lists the rule files and the rules with their states.
func (c *Client) Rules(ctx context.Context) (list view.RuleList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"rules", &list)
}

// Silences lists the silences that have not ended.
func (c *Client) Silences(ctx context.Context) (list view.SilenceList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"silences", &list)
}

// AddSilence adds a silence and returns it as the agent keeps it.
func (c *Client) AddSilence(ctx context.Context, silence alert.Silence) (list view.SilenceList, err error) {
	return list, c.postJSON(ctx, apiPrefix+"silences", silence, &list)
}

// ExpireSilence ends a silence and returns those that are left.
func (c *Client) ExpireSilence(ctx context.Context, id string) (list view.SilenceList, err error) {
	body, err := c.do(ctx, http.MethodDelete, apiPrefix+"silences/"+url.PathEscape(id), nil)
	if err != nil {
		return list, err
	}
	return list, c.decode(body, &list)
}

// Actions lists the newest actions of rules.
func (c *Client) Actions(ctx context.Context, limit int) (list view.ActionList, err error) {
	return list, c.getJSON(ctx, apiPrefix+"actions?limit="+strconv.Itoa(limit), &list)
}

// ResumeActions ends the suspension of actions.
func (c *Client) ResumeActions(ctx context.Context) (list view.ActionList, err error) {
	return list, c.postJSON(ctx, apiPrefix+"actions/resume", struct{}{}, &list)
}
