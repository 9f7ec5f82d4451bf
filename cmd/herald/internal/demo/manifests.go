package demo

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
)

//go:embed pods/*.yaml
var manifests embed.FS

// values are what the manifests are filled in with.
type values struct {
	Program           string
	WebPort, SlowPort int
}

// writeManifests puts the manifests of the pods into a folder.
func writeManifests(folder string, v values) error {
	all, err := template.ParseFS(manifests, "pods/*.yaml")
	if err != nil {
		return err
	}
	v.Program = strconv.Quote(v.Program)
	for _, one := range all.Templates() {
		var text bytes.Buffer
		if err := one.Execute(&text, v); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, one.Name()), text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("write a manifest: %w", err)
		}
	}
	return nil
}

// freePorts are ports of the loopback address that nobody uses now.
func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // all of them are held until the last is found, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
