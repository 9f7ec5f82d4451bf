// Package metricsserver is for the test with a real metrics-server, which `make metricsserver` runs.
package metricsserver
