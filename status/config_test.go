package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldnode/herald/pod"
	"github.com/heraldnode/herald/status"
)

func TestAConfigThatCannotWorkNamesItsFields(t *testing.T) {
	book, api := pod.NewManager(), &guard{}
	taken := prometheus.NewRegistry()
	if _, err := status.New(status.Config{Pods: book, Metrics: taken}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		config status.Config
		named  []string
	}{
		"nothing":              {status.Config{}, []string{"Pods"}},
		"no deletion safety":   {status.Config{Pods: book, API: api}, []string{"Deletion"}},
		"both":                 {status.Config{API: api}, []string{"Pods", "Deletion"}},
		"workers below zero":   {status.Config{Pods: book, Workers: -1}, []string{"Workers"}},
		"time below zero":      {status.Config{Pods: book, FlushTimeout: -time.Second}, []string{"FlushTimeout"}},
		"metrics of another":   {status.Config{Pods: book, Metrics: taken}, []string{"metrics"}},
		"all that it needs":    {status.Config{Pods: book}, nil},
		"and with API server ": {status.Config{Pods: book, API: api, Deletion: newCleanup()}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := status.New(test.config)
			if (err != nil) != (test.named != nil) {
				t.Fatalf("the error is %v", err)
			}
			for _, field := range test.named {
				if !strings.Contains(err.Error(), field) {
					t.Errorf("the error does not name %s: %v", field, err)
				}
			}
		})
	}
}
