package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
)

// The rhythm of Prometheus: Alertmanager keeps alerts in memory only, and resolves those that it has not been told about for a while.
const (
	alertmanagerRefresh     = time.Minute
	alertmanagerValidity    = 4 * time.Minute
	alertmanagerResolvedFor = 15 * time.Minute
	alertmanagerPath        = "/api/v2/alerts"
)

// alertmanager sends alerts to a replica of Alertmanager.
type alertmanager struct {
	*client
	externalURL string
}

func newAlertmanager(config Config, replica Alertmanager) (*sink, error) {
	client, err := newClient(replica.HTTP, alertmanagerPath, config.transport)
	if err != nil {
		return nil, fmt.Errorf("notify.Config: Alertmanagers: %w", err)
	}
	return &sink{
		name: alertmanagerName(replica.URL), kind: KindAlertmanager, sender: &alertmanager{client: client, externalURL: config.ExternalURL},
		rhythm: rhythm{refresh: alertmanagerRefresh, resolvedFor: alertmanagerResolvedFor},
	}, nil
}

// alertmanagerName names a replica by the part of its URL that differs between replicas.
func alertmanagerName(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return KindAlertmanager
	}
	return KindAlertmanager + "/" + parsed.Host + strings.TrimRight(parsed.Path, "/")
}

// postableAlert is an alert of Alertmanager's API, version 2.
type postableAlert struct {
	Labels       alert.Labels      `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

func (a *alertmanager) send(ctx context.Context, batch []message, _ int) error {
	now := time.Now()
	alerts := make([]postableAlert, len(batch))
	for i := range batch {
		m := &batch[i]
		alerts[i] = postableAlert{
			Labels: m.alert.Labels, Annotations: m.annotations(), StartsAt: m.startsAt(now), EndsAt: m.endsAt(now),
			GeneratorURL: m.generatorURL(a.externalURL),
		}
		if m.status == firing {
			alerts[i].EndsAt = now.UTC().Add(alertmanagerValidity)
		}
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return err
	}
	return a.post(ctx, body, nil)
}
