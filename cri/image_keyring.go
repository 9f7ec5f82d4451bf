package cri

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// hubKey is where Docker's tools keep what opens Docker Hub.
const hubKey = "index.docker.io"

// credential opens a registry. It is never printed.
type credential struct{ username, password string }

// keyring has credentials by where they are good for: host[:port][/path], in which each part of the host may be a pattern.
type keyring map[string][]credential

// add puts a secret's credentials behind those that are there. The error shows nothing of the content.
func (k keyring) add(secret *v1.Secret) error {
	entries, err := entriesOf(secret)
	if err != nil {
		return err
	}
	for _, place := range slices.Sorted(maps.Keys(entries)) {
		opens, err := entries[place].credential()
		if err != nil {
			return err
		}
		key := keyOf(place)
		k[key] = append(k[key], opens)
	}
	return nil
}

type keyEntry struct{ Username, Password, Auth string }

// entriesOf reads both forms that Docker's tools have had.
func entriesOf(secret *v1.Secret) (map[string]keyEntry, error) {
	var entries map[string]keyEntry
	var err error
	switch secret.Type {
	case v1.SecretTypeDockerConfigJson:
		var file struct{ Auths map[string]keyEntry }
		err = json.Unmarshal(secret.Data[v1.DockerConfigJsonKey], &file)
		entries = file.Auths
	case v1.SecretTypeDockercfg:
		err = json.Unmarshal(secret.Data[v1.DockerConfigKey], &entries)
	default:
		return nil, fmt.Errorf("it is of type %q, not %s or %s", secret.Type, v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
	}
	if err != nil {
		return nil, errors.New("its content is not the JSON that its type promises") // the cause would show some of it
	}
	return entries, nil
}

func (e keyEntry) credential() (credential, error) {
	if e.Auth == "" {
		return credential{e.Username, e.Password}, nil
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
	username, password, found := strings.Cut(string(decoded), ":")
	if err != nil || !found {
		return credential{}, errors.New("an auth in it is not base64 of username:password")
	}
	return credential{username, password}, nil
}

// keyOf takes away what registries' addresses have around the place itself: https://host/v1/ is host. "" is for what is no
// address, and good for nothing.
func keyOf(address string) string {
	address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	parsed, err := url.Parse("https://" + address)
	if err != nil {
		return ""
	}
	path := parsed.Path
	if strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") {
		path = path[len("/v1"):]
	}
	if path == "/" {
		path = ""
	}
	return parsed.Host + path
}

// lookup is what may open the repository, the longest path first, and a host by its name before patterns.
func (k keyring) lookup(repository string) []credential {
	keys := slices.SortedFunc(maps.Keys(k), func(a, b string) int { return cmp.Compare(b, a) })
	var fit []credential
	for _, key := range keys {
		if isGoodFor(key, repository) {
			fit = append(fit, k[key]...)
		}
	}
	if len(fit) == 0 && strings.HasPrefix(repository, "docker.io/") {
		return k[hubKey]
	}
	return fit
}

func isGoodFor(key, repository string) bool {
	keyHost, keyPath, _ := strings.Cut(key, "/")
	host, within, _ := strings.Cut(repository, "/")
	keyParts, keyPort := splitHost(keyHost)
	parts, port := splitHost(host)
	if keyPort != port || len(keyParts) != len(parts) || !strings.HasPrefix(within, keyPath) {
		return false
	}
	for i, pattern := range keyParts {
		if matched, err := path.Match(pattern, parts[i]); err != nil || !matched {
			return false
		}
	}
	return true
}

func splitHost(host string) (parts []string, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return strings.Split(name, "."), port
	}
	return strings.Split(host, "."), ""
}
