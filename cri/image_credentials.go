package cri

import (
	"cmp"
	"context"
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

	"github.com/heraldnode/herald/cri/pullmanager"
)

// credentialsFor returns the credentials of the pod's pull secrets that match the repository, and whether all secrets could be
// read. A secret that cannot be read is reported, and the pull goes on without it: the image may be public.
func (r *Runtime) credentialsFor(ctx context.Context, pod *v1.Pod, repository string) (_ []credential, complete bool) {
	keys := keyring{}
	var missing []string
	for _, reference := range pod.Spec.ImagePullSecrets {
		if reference.Name == "" {
			continue // the API server allows it; it has no meaning
		}
		if err := r.addPullSecret(ctx, keys, pod.Namespace, reference.Name); err != nil {
			r.podLogger(pod).Info("Failed to retrieve image pull secret", "secret", reference.Name, "err", err)
			missing = append(missing, reference.Name)
		}
	}
	if len(missing) > 0 && ctx.Err() == nil {
		r.warnPod(pod, eventFailedPullSecret, "Unable to retrieve some image pull secrets (%s); "+
			"attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
	return keys.lookup(repository), len(missing) == 0
}

func (r *Runtime) addPullSecret(ctx context.Context, keys keyring, namespace, name string) error {
	if r.config.Secrets == nil {
		return errors.New("no API server is configured to read secrets from")
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.RequestTimeout)
	defer cancel()
	secret, err := r.config.Secrets.GetSecret(ctx, namespace, name)
	if err != nil {
		return err
	}
	return keys.add(secret)
}

// credential authenticates to a registry. It must never be printed.
type credential struct {
	username, password string
	source             pullmanager.Secret
}

// keyring holds credentials by host[:port][/path]. Each label of the host may be a pattern.
type keyring map[string][]credential

// dockerHubKey is the host under which Docker's tools store credentials of Docker Hub.
const dockerHubKey = "index.docker.io"

// add appends the credentials of a secret. Errors never contain parts of its content.
func (k keyring) add(secret *v1.Secret) error {
	entries, err := decodeSecret(secret)
	if err != nil {
		return err
	}
	for _, address := range slices.Sorted(maps.Keys(entries)) {
		entry := entries[address]
		credential, err := entry.credential()
		if err != nil {
			return err
		}
		credential.source = pullmanager.Secret{
			UID: string(secret.UID), Namespace: secret.Namespace, Name: secret.Name,
			CredentialHash: pullmanager.Hash(credential.username, credential.password, entry.Email),
		}
		key := keyOf(address)
		k[key] = append(k[key], credential)
	}
	return nil
}

type authEntry struct{ Username, Password, Auth, Email string }

// decodeSecret decodes both formats of Docker's tools.
func decodeSecret(secret *v1.Secret) (map[string]authEntry, error) {
	var entries map[string]authEntry
	var err error
	switch secret.Type {
	case v1.SecretTypeDockerConfigJson:
		var config struct{ Auths map[string]authEntry }
		err = json.Unmarshal(secret.Data[v1.DockerConfigJsonKey], &config)
		entries = config.Auths
	case v1.SecretTypeDockercfg:
		err = json.Unmarshal(secret.Data[v1.DockerConfigKey], &entries)
	default:
		return nil, fmt.Errorf("secret has type %q, want %s or %s", secret.Type, v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg)
	}
	if err != nil {
		return nil, errors.New("secret content is not valid JSON for its type") // the cause would show parts of the content
	}
	return entries, nil
}

func (e authEntry) credential() (credential, error) {
	if e.Auth == "" {
		return credential{username: e.Username, password: e.Password}, nil
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
	username, password, found := strings.Cut(string(decoded), ":")
	if err != nil || !found {
		return credential{}, errors.New("secret has an auth that is not base64 of username:password")
	}
	return credential{username: username, password: password}, nil
}

// keyOf returns the key of a registry address without scheme and API version: https://host/v1/ becomes host. An invalid
// address becomes "", which matches nothing.
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

// lookup returns the credentials that match the repository, the longest path first and exact hosts before patterns.
func (k keyring) lookup(repository string) []credential {
	keys := slices.SortedFunc(maps.Keys(k), func(a, b string) int { return cmp.Compare(b, a) })
	var matching []credential
	for _, key := range keys {
		if keyMatches(key, repository) {
			matching = append(matching, k[key]...)
		}
	}
	if len(matching) == 0 && strings.HasPrefix(repository, "docker.io/") {
		return k[dockerHubKey]
	}
	return matching
}

func keyMatches(key, repository string) bool {
	keyHost, keyPath, _ := strings.Cut(key, "/")
	host, repositoryPath, _ := strings.Cut(repository, "/")
	keyLabels, keyPort := splitHost(keyHost)
	labels, port := splitHost(host)
	if keyPort != port || len(keyLabels) != len(labels) || !strings.HasPrefix(repositoryPath, keyPath) {
		return false
	}
	for i, pattern := range keyLabels {
		if matched, err := path.Match(pattern, labels[i]); err != nil || !matched {
			return false
		}
	}
	return true
}

func splitHost(host string) (labels []string, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return strings.Split(name, "."), port
	}
	return strings.Split(host, "."), ""
}
