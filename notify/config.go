package notify

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/event"
)

// Config configures a Notifier. NodeName is required. Without any sink, alerts are only logged.
type Config struct {
	// NodeName is the name of this node.
	NodeName string
	// ExternalURL is where people find this agent. It is the generatorURL of alerts without an annotation history_url.
	ExternalURL string
	// Alertmanagers are the replicas of Alertmanager. Each gets every alert.
	Alertmanagers []Alertmanager
	// Webhooks get Alertmanager's webhook messages.
	Webhooks []Webhook
	// Events records a Kubernetes Event when an alert fires and when it is resolved. Default: none.
	Events event.Recorder
	// Pod returns a pod of this node, to which an Event refers. Without it, and for a pod that is gone, Events refer to the Node.
	Pod func(namespace, name string) (*v1.Pod, bool)
	// Checkpoints keeps what was acknowledged. Default: nothing is kept, and everything is told again after a restart.
	Checkpoints *checkpoint.Dir
	// FailingChanged is called without locks when the number of failing sinks has changed. Default: none.
	FailingChanged func()
	// Logger receives log messages, and a line for each alert that fires or is resolved. Default: slog.DiscardHandler.
	Logger *slog.Logger
	// Metrics registers herald_notification*. Default: none.
	Metrics prometheus.Registerer

	transport transportFunc // in tests
}

// HTTP says how to reach a server. Files are read again for each request, except those of certificate authorities.
type HTTP struct {
	// URL is http or https, without user and password.
	URL string
	// Username and PasswordFile are for basic authentication, TokenFile for a bearer token.
	Username, PasswordFile, TokenFile string
	// CAFile has the certificates of authorities in PEM. Default: those of the machine.
	CAFile string
	// CertFile and KeyFile are the client's certificate in PEM. Default: none.
	CertFile, KeyFile string
	// ServerName is the name in the server's certificate. Default: the host of the URL.
	ServerName string
	// Timeout bounds a request. Default: 10 s.
	Timeout time.Duration
}

// Alertmanager is a replica of Alertmanager. Its URL is without /api/v2/alerts.
type Alertmanager struct {
	HTTP
}

// Webhook receives messages in Alertmanager's format, version 4. Its URL must be https, or http to a loopback address.
type Webhook struct {
	// Name is the receiver's name in messages, metrics and states.
	Name string
	HTTP
	// SecretFile has one or, during a rotation, two secrets on lines of their own. Messages are signed with each. Default: not signed.
	SecretFile string
}

const defaultTimeout = 10 * time.Second

func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.NodeName == "" {
		errs = append(errs, errors.New("notify.Config: NodeName is required"))
	}
	if c.ExternalURL != "" && !isURL(c.ExternalURL) {
		errs = append(errs, fmt.Errorf("notify.Config: ExternalURL must be an http or https URL, got %q", c.ExternalURL))
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.FailingChanged == nil {
		c.FailingChanged = func() {}
	}
	if c.transport == nil {
		c.transport = newTransport
	}
	return c, errors.Join(errs...)
}

// isURL reports whether receivers can link to the text.
func isURL(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Host != ""
}
