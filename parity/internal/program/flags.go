//go:build !race

package program

var flags = []string{"-ldflags=-s -w"}
