package config

import (
	"bytes"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// hidden replaces secrets.
const hidden = "HIDDEN"

// Show returns the configuration as a file, including defaults and without secrets.
func (c *Config) Show() (string, error) {
	shown := c.withoutSecrets()
	shown.Listen = c.ListenAddress()
	return shown.encode(func(l leaf) bool {
		switch l.Type.Kind() {
		case reflect.Bool, reflect.Int:
			return true
		default:
			return !l.value.IsZero()
		}
	})
}

func (c *Config) withoutSecrets() Config {
	shown := *c
	shown.StaticPodURL = hideSecrets(c.StaticPodURL)
	shown.StaticPodURLHeader = nil
	for name := range c.StaticPodURLHeader {
		if shown.StaticPodURLHeader == nil {
			shown.StaticPodURLHeader = map[string][]string{}
		}
		shown.StaticPodURLHeader[name] = []string{hidden}
	}
	return shown
}

// hideSecrets hides the user and the query of a URL.
func hideSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	if u.User != nil {
		u.User = url.User(hidden)
	}
	if u.RawQuery != "" {
		u.RawQuery = hidden
	}
	u.Fragment, u.RawFragment = "", "" // not sent
	return u.String()
}

// encode returns a file with the fields for which include returns true.
func (c *Config) encode(include func(leaf) bool) (string, error) {
	top := &yaml.Node{Kind: yaml.MappingNode}
	addField(top, "apiVersion", &yaml.Node{Kind: yaml.ScalarNode, Value: APIVersion})
	addField(top, "kind", &yaml.Node{Kind: yaml.ScalarNode, Value: Kind})
	for l := range leaves(reflect.ValueOf(c).Elem(), "") {
		if !include(l) {
			continue
		}
		value := &yaml.Node{}
		if err := value.Encode(l.value.Interface()); err != nil {
			return "", fmt.Errorf("encode %s: %w", l.path, err)
		}
		names := strings.Split(l.path, ".")
		parent := top
		for _, name := range names[:len(names)-1] {
			parent = lastMapping(parent, name)
		}
		addField(parent, names[len(names)-1], value)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(top); err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	return text.String(), nil
}

func addField(mapping *yaml.Node, name string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
}

// lastMapping returns the last field of the mapping, which it adds unless it already has that name.
func lastMapping(mapping *yaml.Node, name string) *yaml.Node {
	if n := len(mapping.Content); n == 0 || mapping.Content[n-2].Value != name {
		addField(mapping, name, &yaml.Node{Kind: yaml.MappingNode})
	}
	return mapping.Content[len(mapping.Content)-1]
}
