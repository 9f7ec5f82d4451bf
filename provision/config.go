package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/event"
)

// API is the API server, for what pods refer to. Errors are such that apierrors.IsNotFound sees through them; nobody
// changes what was returned.
type API interface {
	// GetConfigMap reads the newest version of a config map.
	GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	// GetSecret reads the newest version of a secret.
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// ListServices reads the services of a namespace.
	ListServices(ctx context.Context, namespace string) ([]v1.Service, error)
	// CreateToken issues a token of a service account.
	CreateToken(ctx context.Context, namespace, account string, wanted *authenticationv1.TokenRequest) (
		*authenticationv1.TokenRequest, error)
}

// NodeInfo are what a container may want to know of its node.
type NodeInfo struct {
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []netip.Addr
	// Allocatable is what the node has to give to pods: the limit of containers that have none.
	Allocatable v1.ResourceList
}

// Config says where volumes are, and where their content comes from.
type Config struct {
	// Root is the folder of the pods' folders, an absolute path. Required.
	Root string
	// API is the API server. Default: there is none, and what refers to it is an error.
	API API
	// NodeInfo is what is known of the node now. It must not block. Default: nothing is.
	NodeInfo func() NodeInfo
	// Events hears of files that could not be brought up to date, and of variables that were left out. Default: nobody.
	Events event.Recorder
	// CacheTTL is how long an answer of the API server serves other pods, and the same pod again. A pod never gets an
	// answer that is older than its own arrival. Default: 10 s.
	CacheTTL time.Duration
	// Logger gets what no caller hears of. Default: silence.
	Logger *slog.Logger
	// Metrics gets storage_operation_duration_seconds. Default: none.
	Metrics prometheus.Registerer
}

func (c *Config) complete() error {
	switch {
	case c.Root == "":
		return errors.New("provision.Config.Root: required")
	case !filepath.IsAbs(c.Root):
		return fmt.Errorf("provision.Config.Root: %q is not an absolute path", c.Root)
	case c.CacheTTL < 0:
		return fmt.Errorf("provision.Config.CacheTTL: %v is below zero", c.CacheTTL)
	case c.CacheTTL == 0:
		c.CacheTTL = 10 * time.Second
	}
	if c.NodeInfo == nil {
		c.NodeInfo = func() NodeInfo { return NodeInfo{} }
	}
	if c.Events == nil {
		c.Events = event.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
