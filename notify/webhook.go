package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heraldnode/herald/alert"
)

// webhookSpacing is how long the changes of a group wait for each other, except the first.
const webhookSpacing = 10 * time.Second

// webhook sends messages in Alertmanager's format.
type webhook struct {
	*client
	name, secretFile, externalURL string
}

func newWebhook(config Config, receiver Webhook) (*sink, error) {
	if receiver.Name == "" {
		return nil, errors.New("notify.Config: Webhooks: a name is required")
	}
	parsed, err := url.Parse(receiver.URL)
	if err == nil && parsed.Scheme == "http" && !isLoopback(parsed.Hostname()) {
		return nil, fmt.Errorf("notify.Config: webhook %s: the URL must be https, or http to a loopback address", receiver.Name)
	}
	client, err := newClient(receiver.HTTP, "", config.transport)
	if err != nil {
		return nil, fmt.Errorf("notify.Config: webhook %s: %w", receiver.Name, err)
	}
	return &sink{
		name: KindWebhook + "/" + receiver.Name, kind: KindWebhook, isGrouped: true, spacing: webhookSpacing,
		sender: &webhook{client: client, name: receiver.Name, secretFile: receiver.SecretFile, externalURL: config.ExternalURL},
	}, nil
}

// webhookMessage is version 4 of Alertmanager's format.
type webhookMessage struct {
	Receiver          string            `json:"receiver"`
	Status            status            `json:"status"`
	Alerts            []webhookAlert    `json:"alerts"`
	GroupLabels       alert.Labels      `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
}

type webhookAlert struct {
	Status       status            `json:"status"`
	Labels       alert.Labels      `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"` // the zero time if it fires
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
}

func (w *webhook) send(ctx context.Context, batch []message, truncated int) error {
	now := time.Now()
	body, err := json.Marshal(w.newMessage(batch, truncated, now))
	if err != nil {
		return err
	}
	header := map[string]string{}
	if w.secretFile != "" {
		secrets, err := readSecrets(w.secretFile)
		if err != nil {
			return err
		}
		header[SignatureHeader] = sign(secrets, body, now)
	}
	return w.post(ctx, body, header)
}

func (w *webhook) newMessage(batch []message, truncated int, now time.Time) *webhookMessage {
	group := groupLabels(batch[0].alert.Labels)
	result := &webhookMessage{
		Receiver: w.name, Status: resolved, GroupLabels: group, ExternalURL: w.externalURL, Version: "4", GroupKey: "{}:" + labelSet(group),
		TruncatedAlerts: truncated,
	}
	for i := range batch {
		m := &batch[i]
		a := webhookAlert{
			Status: m.status, Labels: m.alert.Labels, Annotations: m.annotations(), StartsAt: m.startsAt(now),
			GeneratorURL: m.generatorURL(w.externalURL), Fingerprint: fingerprint(m.alert.Labels),
		}
		if m.status == resolved {
			a.EndsAt = m.endsAt(now)
		} else {
			result.Status = firing
		}
		result.Alerts = append(result.Alerts, a)
	}
	result.CommonLabels, result.CommonAnnotations = maps.Clone(result.Alerts[0].Labels), maps.Clone(result.Alerts[0].Annotations)
	for i := range result.Alerts[1:] {
		keepCommon(result.CommonLabels, result.Alerts[i+1].Labels)
		keepCommon(result.CommonAnnotations, result.Alerts[i+1].Annotations)
	}
	return result
}

// keepCommon removes what is not in both.
func keepCommon(common, other map[string]string) {
	maps.DeleteFunc(common, func(name, value string) bool {
		otherValue, ok := other[name]
		return !ok || otherValue != value
	})
}

// labelSet returns labels as Alertmanager writes them in the keys of groups.
func labelSet(labels alert.Labels) string {
	pairs := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+strconv.Quote(labels[name]))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// fingerprint identifies labels as Alertmanager does: FNV-1a, 64 bits, over names and values in the order of names, each followed by a byte
// that no UTF-8 text contains.
func fingerprint(labels alert.Labels) string {
	const offset, prime, separator = 14695981039346656037, 1099511628211, 255
	sum := uint64(offset)
	add := func(text string) {
		for i := range len(text) {
			sum = (sum ^ uint64(text[i])) * prime
		}
		sum = (sum ^ separator) * prime
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		add(name)
		add(labels[name])
	}
	return fmt.Sprintf("%016x", sum)
}
