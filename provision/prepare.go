package provision

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// prepareDelay is how long a request of PrepareEnvironment waits, so that pods that start at once share it. The start of a sandbox
// takes longer.
const prepareDelay = 50 * time.Millisecond

// PrepareEnvironment requests the objects that Environment will need for the pod's containers, so that it need not wait for them. It
// does not block. The caller starts the pod's sandbox meanwhile.
func (p *Provisioner) PrepareEnvironment(pod *v1.Pod) {
	if p.config.API == nil {
		return
	}
	by := p.readerOf(pod)
	p.services.prepare(metav1.NamespaceDefault, "", by)
	if linksServices(pod) && pod.Namespace != metav1.NamespaceDefault {
		p.services.prepare(pod.Namespace, "", by)
	}
	configMaps, secrets := environmentObjects(pod)
	for _, name := range configMaps {
		p.configMaps.prepare(pod.Namespace, name, by)
	}
	for _, name := range secrets {
		p.secrets.prepare(pod.Namespace, name, by)
	}
}

// environmentObjects returns the names of the ConfigMaps and Secrets in the environment of the pod's containers, each once.
func environmentObjects(pod *v1.Pod) (configMaps, secrets []string) {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, source := range container.EnvFrom {
			if source.ConfigMapRef != nil {
				configMaps = append(configMaps, source.ConfigMapRef.Name)
			}
			if source.SecretRef != nil {
				secrets = append(secrets, source.SecretRef.Name)
			}
		}
		for _, variable := range container.Env {
			switch from := variable.ValueFrom; {
			case from == nil:
			case from.ConfigMapKeyRef != nil:
				configMaps = append(configMaps, from.ConfigMapKeyRef.Name)
			case from.SecretKeyRef != nil:
				secrets = append(secrets, from.SecretKeyRef.Name)
			}
		}
	}
	slices.Sort(configMaps)
	slices.Sort(secrets)
	return slices.Compact(configMaps), slices.Compact(secrets)
}

// prepare requests an object after prepareDelay, unless what is cached then is fresh enough for the reader, or the reader is removed.
func (c *objectCache[T]) prepare(namespace, name string, by reader) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c.mu.Lock()
	c.entryLocked(key, by.pod)
	c.mu.Unlock()
	c.requests.start(func(ctx context.Context) {
		select {
		case <-time.After(prepareDelay):
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		entry := c.entries[key]
		if entry == nil {
			return
		}
		if _, isRead := entry.readers[by.pod]; isRead && c.cachedLocked(entry, by) == nil {
			c.fetchLocked(key, entry)
		}
	})
}
