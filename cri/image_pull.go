package cri

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pull fetches the image unless it failed too recently, and tells of it.
func (w *imageWish) pull(ctx context.Context) (string, error) {
	key := backoffKey{w.pod.UID, w.name.Tagged()}
	if rest, why := w.backoff.rest(key, time.Now()); rest > 0 {
		message := fmt.Sprintf("Back-off pulling image %q", w.container.Image)
		w.events.normal(eventImageBackOff, message)
		return "", &startError{reason: reasonImageBackOff, message: message + ": " + why, retry: rest, announced: true}
	}
	credentials := w.credentialsFor(ctx, w.pod, w.name.Repository)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	w.events.normal(eventImagePulling, fmt.Sprintf("Pulling image %q", w.container.Image))
	begun := time.Now()
	got := w.pulls.do(ctx, w.pullKey(credentials), func(ctx context.Context) pulled { return w.fetch(ctx, credentials) })
	if ctx.Err() != nil {
		return "", ctx.Err() // nobody's fault
	}
	if got.err != nil {
		w.events.warn(eventFailed, fmt.Sprintf("Failed to pull image %q: %s", w.container.Image, messageOf(got.err)))
		told := w.pullError(got.err)
		w.backoff.note(key, time.Now(), told.reason+": "+told.message)
		return "", told
	}
	waited := time.Since(begun)
	w.backoff.forget(key)
	w.metrics.imagePulls.WithLabelValues(sizeLabel(got.size)).Observe(waited.Seconds())
	w.events.normal(eventImagePulled, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		w.container.Image, got.took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), got.size))
	return got.ref, nil
}

// pullError gives a failure its reason: a runtime may begin its sentence with one of the words that the CRI has for that.
func (w *imageWish) pullError(err error) *startError {
	told := failed(reasonImagePull, err)
	told.announced = true
	for reason, meaning := range map[string]string{
		reasonRegistryUnavailable: "the registry is unavailable", reasonSignature: "the signature validation failed",
	} {
		if rest, found := strings.CutPrefix(told.message, reason); found {
			told.reason = reason
			told.message = fmt.Sprintf("image pull failed for %s because %s%s", w.container.Image, meaning, rest)
		}
	}
	return told
}

func (w *imageWish) pullKey(credentials []credential) pullKey {
	return pullKey{
		image: w.name.Tagged(), handler: w.spec.RuntimeHandler, credentials: sha256.Sum256(fmt.Appendf(nil, "%q", credentials)),
	}
}

// fetch asks the runtime, with each credential in turn. The size is nice to have.
func (w *imageWish) fetch(ctx context.Context, credentials []credential) pulled {
	begun := time.Now()
	ref, err := w.fetchWithEach(ctx, credentials)
	took := time.Since(begun)
	if err != nil {
		return pulled{err: err}
	}
	image, _ := w.imageStatus(ctx, w.spec)
	return pulled{ref: ref, size: image.GetSize(), took: took}
}

func (w *imageWish) fetchWithEach(ctx context.Context, credentials []credential) (string, error) {
	if len(credentials) == 0 {
		return w.fetchWith(ctx, nil)
	}
	var failures []error
	for _, one := range credentials {
		ref, err := w.fetchWith(ctx, &runtimeapi.AuthConfig{Username: one.username, Password: one.password})
		if err == nil || ctx.Err() != nil {
			return ref, err
		}
		failures = append(failures, err)
	}
	return "", joinMessages(failures)
}

func (w *imageWish) fetchWith(ctx context.Context, auth *runtimeapi.AuthConfig) (string, error) {
	answer, err := w.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: w.spec, Auth: auth, SandboxConfig: w.sandbox})
	if err == nil && answer.ImageRef == "" {
		err = errors.New("the runtime gave the image no reference")
	}
	return answer.GetImageRef(), err
}

// joinMessages says each sentence once.
func joinMessages(failures []error) error {
	if len(failures) == 1 {
		return failures[0]
	}
	var said []string
	for _, err := range failures {
		if message := messageOf(err); !slices.Contains(said, message) {
			said = append(said, message)
		}
	}
	return errors.New(strings.Join(said, ", "))
}
