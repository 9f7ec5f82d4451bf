package provision

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// oldestToken is the age at which a token is renewed, however long it would live.
const oldestToken = 24 * time.Hour

// tokenKey is what makes two tokens of a pod different.
type tokenKey struct {
	account, audience string
	seconds           int64
}

// token is a token that was issued, by the node's own clock: the server's may differ.
type token struct {
	text           string
	renew, expires time.Time
}

// tokenOf is a token that is bound to the pod and has at least a fifth of its life before it. One that cannot be renewed
// is good until it expires.
func (p *Provisioner) tokenOf(ctx context.Context, pod *v1.Pod, wanted *v1.ServiceAccountTokenProjection) ([]byte, error) {
	key := tokenKey{account: pod.Spec.ServiceAccountName, audience: wanted.Audience, seconds: 3600}
	if key.account == "" {
		key.account = "default"
	}
	if wanted.ExpirationSeconds != nil {
		key.seconds = *wanted.ExpirationSeconds
	}
	known := p.knownToken(pod, key)
	if time.Now().Before(known.renew) {
		return []byte(known.text), nil
	}
	issued, err := p.issueToken(ctx, pod, key)
	if err == nil {
		return []byte(issued.text), nil
	}
	if time.Now().Before(known.expires) {
		p.config.Logger.Warn("a token could not be renewed, the old one is still good",
			"pod", podid.FullNameOf(pod), "serviceAccount", key.account, "error", err)
		return []byte(known.text), nil
	}
	return nil, fmt.Errorf("serviceAccountToken of %q: %w", key.account, err)
}

func (p *Provisioner) knownToken(pod *v1.Pod, key tokenKey) token {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memoryLocked(podid.UID(pod.UID)).tokens[key]
}

func (p *Provisioner) issueToken(ctx context.Context, pod *v1.Pod, key tokenKey) (token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &key.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if key.audience != "" {
		request.Spec.Audiences = []string{key.audience}
	}
	asked := time.Now()
	answer, err := patient(func(ctx context.Context, namespace, account string) (*authenticationv1.TokenRequest, error) {
		return p.config.API.CreateToken(ctx, namespace, account, request)
	})(ctx, pod.Namespace, key.account)
	if err != nil {
		return token{}, err
	}
	life := time.Duration(key.seconds) * time.Second
	if granted := answer.Spec.ExpirationSeconds; granted != nil { // the server may have its own mind
		life = time.Duration(*granted) * time.Second
	}
	issued := token{
		text: answer.Status.Token, renew: asked.Add(min(life/5*4, oldestToken)), expires: asked.Add(life),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memoryLocked(podid.UID(pod.UID)).tokens[key] = issued
	return issued, nil
}
