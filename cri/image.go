package cri

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/heraldnode/herald/cri/criconfig"
	"github.com/heraldnode/herald/cri/pullmanager"
	"github.com/heraldnode/herald/internal/image"
	"github.com/heraldnode/herald/podid"
)

// imageRequest is a container's request for its image:
//
//	valid name -> present, the policy accepts that, and the pod may use it -> done
//	                 |
//	                 v
//	      not in back-off -> pulled, possibly shared with other pods -> done
type imageRequest struct {
	*Runtime
	name       image.Name
	pod        *v1.Pod
	container  *v1.Container
	sandbox    *runtimeapi.PodSandboxConfig
	containers []*runtimeapi.Container // the pod's, also exited ones
	events     *containerEvents
	spec       *runtimeapi.ImageSpec
	// ignoreBackoff reports that the image is pulled at once, whatever failed before.
	ignoreBackoff bool

	// credentials of the pod for the image, once they were read. complete reports whether all secrets could be read.
	credentials       []credential
	hasRead, complete bool
}

// ensureImage makes the container's image available according to its pull policy and returns the runtime's reference to it.
// containers are the pod's. Errors are startErrors unless ctx ends.
func (s *containerStart) ensureImage(ctx context.Context, containers []*runtimeapi.Container) (string, error) {
	container := s.container
	q := &imageRequest{
		Runtime: s.Runtime, pod: s.pod, container: container, sandbox: s.sandbox.config, containers: containers,
		events: s.containerEvents(s.pod, container.Name), ignoreBackoff: s.start.IgnoreBackoff,
	}
	labels := imageRequestLabels{policy: container.ImagePullPolicy}
	defer func() { s.metrics.countImageRequest(labels) }()
	var err error
	if q.name, err = image.Parse(container.Image); err != nil {
		return "", q.fail(reasonInvalidImageName, eventImageInspectFailed,
			"Failed to apply default image tag %q: %v", container.Image, err)
	}
	q.spec = &runtimeapi.ImageSpec{
		Image: q.name.Tagged(), UserSpecifiedImage: container.Image, Annotations: s.pod.Annotations,
		RuntimeHandler: s.sandbox.handler,
	}
	if container.ImagePullPolicy != v1.PullAlways {
		present, err := s.imageStatus(ctx, q.spec)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", q.fail(reasonImageInspect, eventImageInspectFailed,
				"Failed to inspect image %q: %s", container.Image, errorMessage(err))
		}
		labels.present = new(present != nil)
		if present != nil && q.mayUse(ctx, present) {
			labels.pull, s.image = new(false), present
			q.events.normal(eventImagePulled,
				fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", container.Image))
			return present.Id, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if container.ImagePullPolicy == v1.PullNever {
			// Also if the pod may not use the image: that must not reveal that the node has it (IMG-18).
			return "", q.fail(reasonImageNeverPull, eventImageErrorNeverPull,
				"Container image %q is not present with pull policy of Never", container.Image)
		}
	}
	labels.pull = new(true)
	ref, pulled, err := q.pull(ctx)
	s.image = pulled
	return ref, err
}

// imageUser returns the user that the container's image runs as. ensureImage has usually read it.
func (s *containerStart) imageUser(ctx context.Context) (criconfig.ImageUser, error) {
	if s.image == nil {
		var err error
		if s.image, err = s.imageStatus(ctx, &runtimeapi.ImageSpec{Image: s.container.Image}); err != nil {
			return criconfig.ImageUser{}, fmt.Errorf("get user of image %s: %w", s.container.Image, err)
		}
	}
	return userOf(s.image), nil
}

// mayUse reports whether the pod may use an image that the node has, without a pull.
func (q *imageRequest) mayUse(ctx context.Context, present *runtimeapi.Image) bool {
	decision := q.pullManager.Check(q.name, present.Id, func() []pullmanager.Secret {
		var secrets []pullmanager.Secret
		for _, credential := range q.readCredentials(ctx) {
			secrets = append(secrets, credential.source)
		}
		return secrets
	})
	q.metrics.imageChecks.WithLabelValues(string(decision)).Inc()
	return decision.IsAllowed() || q.hasRead && !q.complete && q.hasUsed(present)
}

// hasUsed reports whether a container of this pod was created from the image. While secrets cannot be read, such a pod may restart
// its containers: it has had access to the image.
func (q *imageRequest) hasUsed(present *runtimeapi.Image) bool {
	return slices.ContainsFunc(q.containers, func(container *runtimeapi.Container) bool {
		return container.GetImage().GetImage() == present.Id || container.ImageRef == present.Id
	})
}

// readCredentials reads the pod's credentials for the image once.
func (q *imageRequest) readCredentials(ctx context.Context) []credential {
	if !q.hasRead {
		q.credentials, q.complete = q.credentialsFor(ctx, q.pod, q.name.Repository)
		q.hasRead = true
	}
	return q.credentials
}

// fail records an event with the message and returns the error.
func (q *imageRequest) fail(reason, eventReason, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	q.events.warn(eventReason, message)
	return &startError{reason: reason, message: message, hasEvent: true}
}

// pull pulls the image, unless an earlier pull failed too recently, and records events. The image is nil if its status could not be read.
func (q *imageRequest) pull(ctx context.Context) (ref string, pulled *runtimeapi.Image, err error) {
	key := backoffKey{q.pod.UID, q.name.Tagged()}
	if delay, cause := q.pullBackoff.remaining(key, time.Now()); delay > 0 && !q.ignoreBackoff {
		message := fmt.Sprintf("Back-off pulling image %q", q.container.Image)
		q.events.normal(eventImageBackOff, message)
		return "", nil, &startError{reason: reasonImagePullBackOff, message: message + ": " + cause, retryAfter: delay, hasEvent: true}
	}
	credentials := q.readCredentials(ctx)
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}
	q.events.normal(eventImagePulling, fmt.Sprintf("Pulling image %q", q.container.Image))
	started := time.Now()
	endPull := q.pulls.times.begin(podid.UID(q.pod.UID), started)
	result := q.pulls.do(ctx, q.pullKey(credentials), func(ctx context.Context) pullResult { return q.fetch(ctx, credentials) })
	endPull(time.Now())
	if ctx.Err() != nil {
		return "", nil, ctx.Err() // does not count as a failed pull
	}
	if result.err != nil {
		q.events.warn(eventFailed, fmt.Sprintf("Failed to pull image %q: %s", q.container.Image, errorMessage(result.err)))
		startErr := q.pullError(result.err)
		q.pullBackoff.fail(key, time.Now(), startErr.reason+": "+startErr.message)
		return "", nil, startErr
	}
	waited := time.Since(started)
	q.pullBackoff.reset(key)
	size := result.image.GetSize() // 0: unknown
	q.metrics.imagePulls.WithLabelValues(sizeLabel(size)).Observe(waited.Seconds())
	q.events.normal(eventImagePulled, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		q.container.Image, result.duration.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), size))
	return result.ref, result.image, nil
}

// pullError returns the startError of a failed pull. The runtime's message may begin with a reason that the CRI defines.
func (q *imageRequest) pullError(err error) *startError {
	startErr := newStartError(reasonImagePull, err)
	startErr.hasEvent = true
	for reason, meaning := range map[string]string{
		reasonRegistryUnavailable: "the registry is unavailable", reasonSignatureValidation: "the signature validation failed",
	} {
		if rest, found := strings.CutPrefix(startErr.message, reason); found {
			startErr.reason = reason
			startErr.message = fmt.Sprintf("image pull failed for %s because %s%s", q.container.Image, meaning, rest)
		}
	}
	return startErr
}

func (q *imageRequest) pullKey(credentials []credential) pullKey {
	var logins [][2]string
	for _, credential := range credentials {
		logins = append(logins, [2]string{credential.username, credential.password})
	}
	return pullKey{
		image: q.name.Tagged(), handler: q.spec.RuntimeHandler, credentials: sha256.Sum256(fmt.Appendf(nil, "%q", logins)),
	}
}

// fetch pulls the image with each credential in turn and records who may use it.
func (q *imageRequest) fetch(ctx context.Context, credentials []credential) pullResult {
	before, err := q.imageStatus(ctx, q.spec)
	if err != nil {
		return pullResult{err: err}
	}
	pull, err := q.pullManager.Begin(q.name, before.GetId())
	if err != nil {
		return pullResult{err: err}
	}
	started := time.Now()
	ref, used, err := q.fetchWithCredentials(ctx, credentials)
	duration := time.Since(started)
	if err != nil {
		q.recordFailure(ctx, pull, err)
		return pullResult{err: err}
	}
	pull.Succeed(ref, used)
	image, _ := q.imageStatus(ctx, q.spec)
	return pullResult{ref: ref, image: image, duration: duration}
}

// recordFailure records a failed pull. The runtime may have completed it although the call failed.
func (q *imageRequest) recordFailure(ctx context.Context, pull *pullmanager.Pull, err error) {
	now, statusErr := q.imageStatus(context.WithoutCancel(ctx), q.spec)
	if statusErr != nil || now == nil && isInterrupted(err) {
		pull.Abandon()
		return
	}
	pull.Fail(now.GetId())
}

// fetchWithCredentials also returns the secret that held the credential, or nil if none was needed.
func (q *imageRequest) fetchWithCredentials(ctx context.Context, credentials []credential) (
	ref string, used *pullmanager.Secret, err error,
) {
	if len(credentials) == 0 {
		ref, err = q.pullImage(ctx, nil)
		return ref, nil, err
	}
	var errs []error
	for _, credential := range credentials {
		ref, err := q.pullImage(ctx, &runtimeapi.AuthConfig{Username: credential.username, Password: credential.password})
		if err == nil || ctx.Err() != nil || isInterrupted(err) {
			return ref, &credential.source, err
		}
		errs = append(errs, err)
	}
	return "", nil, joinMessages(errs)
}

func (q *imageRequest) pullImage(ctx context.Context, auth *runtimeapi.AuthConfig) (string, error) {
	response, err := q.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: q.spec, Auth: auth, SandboxConfig: q.sandbox})
	if err == nil && response.ImageRef == "" {
		err = errors.New("runtime returned no image reference")
	}
	return response.GetImageRef(), err
}

// joinMessages joins the distinct messages of the errors.
func joinMessages(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	var messages []string
	for _, err := range errs {
		if message := errorMessage(err); !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
	}
	return errors.New(strings.Join(messages, ", "))
}

// imageStatus returns the image, or nil if it is not present.
func (r *Runtime) imageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	response, err := r.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if isNotFound(err) {
		return nil, nil
	}
	return response.GetImage(), err
}

// userOf returns the user that the image runs as. An image without a user runs as root.
func userOf(image *runtimeapi.Image) criconfig.ImageUser {
	switch {
	case image.GetUid() != nil:
		return criconfig.ImageUser{UID: &image.Uid.Value}
	case image.GetUsername() != "":
		return criconfig.ImageUser{Name: image.Username}
	default:
		return criconfig.ImageUser{UID: new(int64)}
	}
}
