package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/heraldnode/herald/podid"
)

// APIConfig says how the API server's pods are read.
type APIConfig struct {
	// ListerWatcher lists and watches the pods of all namespaces with the field selector spec.nodeName=<Node>. Required.
	ListerWatcher cache.ListerWatcher
	// NodeName is the name of this node; pods of others are left out and reported. Required.
	NodeName string
	// WaitForNode returns when the node object is known, which is when pods can be admitted (CFG-31), or when ctx ended.
	// Default: no wait.
	WaitForNode func(ctx context.Context) error
	// IdleTimeout is how long a watch may be silent, or take to begin, before it is taken for dead and opened again, and how
	// long a list may take. The API server sends a bookmark about once a minute. Default 3 min.
	IdleTimeout time.Duration
	// Logger gets what client-go's reflector has to say (Info and Debug). Default: silence.
	Logger *slog.Logger
}

// API reads the pods that the API server has bound to this node. Run is called once.
type API struct {
	config APIConfig
}

// NewAPI checks the configuration.
func NewAPI(config APIConfig) (*API, error) {
	switch {
	case config.ListerWatcher == nil:
		return nil, errors.New("source.APIConfig.ListerWatcher: required")
	case config.NodeName == "":
		return nil, errors.New("source.APIConfig.Node: required")
	case config.IdleTimeout < 0:
		return nil, fmt.Errorf("source.APIConfig.IdleTimeout: %v is negative", config.IdleTimeout)
	}
	if config.IdleTimeout == 0 {
		config.IdleTimeout = 3 * time.Minute
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &API{config: config}, nil
}

// Name implements Source.
func (a *API) Name() podid.Source { return podid.API }

// Run implements Source. Only what the API server says removes a pod: a complete list without it, or a watch event;
// never an error (CFG-34).
func (a *API) Run(ctx context.Context, sink Sink) error {
	if a.config.WaitForNode != nil {
		if err := a.config.WaitForNode(ctx); err != nil {
			return fmt.Errorf("wait for node %s: %w", a.config.NodeName, err)
		}
	}
	desk := &apiReports{sink: sink}
	connection := newAPIConnection(a.config.ListerWatcher, a.config.IdleTimeout, desk)
	defer connection.close()
	store := newAPIStore(a.config.NodeName, sink, desk, connection.alive)
	options := cache.ReflectorOptions{Name: "pods of this node"}
	reflector := cache.NewReflectorWithOptions(connection, &v1.Pod{}, store, options)
	a.reflect(klog.NewContext(ctx, logr.FromSlogHandler(a.config.Logger.Handler())), reflector)
	return nil
}

// reflect stands in for the reflector's own loop, which hands failures to a handler that the whole process shares. They
// were reported where the request was made.
func (a *API) reflect(ctx context.Context, reflector *cache.Reflector) {
	backoff := retries()
	for ctx.Err() == nil {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		a.config.Logger.Debug("list and watch of pods ended", "error", err)
		if time.Since(began) > 2*time.Minute {
			backoff = retries()
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(backoff.Step(), patienceOf(err))):
		}
	}
}

// patienceOf is how long the server asks to be left alone, or 0. More than five minutes are not believed (F4).
func patienceOf(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, 5*time.Minute)
}

// retries spaces out attempts to reach the API server as client-go does: from about a second to half a minute or one.
func retries() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}
