//go:build race

package program

var flags = []string{"-race"}
