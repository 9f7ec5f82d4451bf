package containerd

import (
	_ "embed"
	"os"
	"path/filepath"
	"text/template"

	"github.com/heraldnode/herald/parity/internal/needs"
)

const configFile = "config.toml"

//go:embed config.toml.tmpl
var configTemplate string

func writeConfig(folder string) error {
	plugins, err := needs.CNIPlugins()
	if err != nil {
		return err
	}
	parsed, err := template.New(configFile).Parse(configTemplate)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, configFile))
	if err != nil {
		return err
	}
	defer file.Close()
	return parsed.Execute(file, map[string]string{
		"Folder":       folder,
		"CNIPlugins":   plugins,
		"SandboxImage": SandboxImage,
	})
}
