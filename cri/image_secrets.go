package cri

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// credentialsFor are those of the pod's pull secrets that may open the repository. A secret that cannot be had or read is
// told of, and the pull is tried without: the image may be open to all.
func (r *Runtime) credentialsFor(ctx context.Context, pod *v1.Pod, repository string) []credential {
	keys := keyring{}
	var without []string
	for _, reference := range pod.Spec.ImagePullSecrets {
		if reference.Name == "" {
			continue // the API server allows it, and it means nothing
		}
		if err := r.addSecret(ctx, keys, pod.Namespace, reference.Name); err != nil {
			r.config.Logger.Info("an image pull secret is of no use", "pod", describe(pod), "secret", reference.Name, "error", err)
			without = append(without, reference.Name)
		}
	}
	if len(without) > 0 && ctx.Err() == nil {
		r.warnPod(pod, eventPullSecret, "Unable to retrieve some image pull secrets (%s); "+
			"attempting to pull the image may not succeed.", strings.Join(without, ", "))
	}
	return keys.lookup(repository)
}

func (r *Runtime) addSecret(ctx context.Context, keys keyring, namespace, name string) error {
	if r.config.Secrets == nil {
		return errors.New("this node has no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.RequestTimeout)
	defer cancel()
	secret, err := r.config.Secrets.GetSecret(ctx, namespace, name)
	if err != nil {
		return err
	}
	return keys.add(secret)
}
