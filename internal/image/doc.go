// Package image reads the names of container images.
package image
