package explain

import (
	"fmt"
	"strings"
)

// images matches a container whose start failed: its image is not there, or the runtime could not create or start it.
func (e *explainer) images() (Verdict, bool) {
	c := e.findAny(func(c *container) bool {
		reason, _, _ := e.waitReason(c)
		return isStartError(reason)
	})
	if c == nil {
		return Verdict{}, false
	}
	return e.startError(c), true
}

// waitReason returns why the container waits for its start, from its status or from the worker.
func (e *explainer) waitReason(c *container) (reason, message string, start Start) {
	start = e.Worker.Starts[c.spec.Name]
	if waiting := c.waiting(); waiting != nil {
		return waiting.Reason, waiting.Message, start
	}
	if c.status == nil {
		return start.Reason, start.Message, start
	}
	return "", "", Start{}
}

// isStartError reports whether a waiting reason is that of a failed start.
func isStartError(reason string) bool {
	switch reason {
	case "", "ContainerCreating", "PodInitializing", "CrashLoopBackOff", "RestartingAllContainers", "Completed":
		return false
	default:
		return true
	}
}

// failure is what a waiting reason means.
type failure struct {
	code, rule, summary, change string
	final                       bool
}

// startError is about one container that could not be started.
func (e *explainer) startError(c *container) Verdict {
	reason, message, start := e.waitReason(c)
	f := startFailure(c, reason, message)
	v := Verdict{
		Code: f.code, Container: c.spec.Name, Summary: f.summary, Final: f.final,
		Headline: e.isNot() + ": " + f.summary,
		Chain:    []Because{{Rule: f.rule, Text: e.startMessage(reason, message, start), Input: "waiting reason " + clean(reason, maxName)}},
		Changes:  []string{f.change},
		Next:     Step{What: "start", At: start.At, By: ByHerald},
	}
	if f.code == CodeImageNotFound || f.code == CodeImagePull || f.code == CodeImageAccessDenied || f.code == CodeRegistryUnavailable {
		v.Next.What = "pull"
	}
	if f.final {
		v.Headline = e.isNot() + ", and will not be: " + f.summary
		v.Next = Step{What: "nothing: no attempt can succeed"}
	}
	return v
}

// startMessage is the runtime's message with the number of attempts.
func (e *explainer) startMessage(reason, message string, start Start) string {
	text := clean(message, maxQuote)
	if text == "" {
		text = clean(reason, maxName)
	}
	if start.Failures > 1 {
		text += fmt.Sprintf(" (%d tries)", start.Failures)
	}
	return text
}

// startFailure translates a waiting reason.
func startFailure(c *container, reason, message string) failure {
	image := clean(c.spec.Image, maxName)
	field := fmt.Sprintf("spec.%s[%d].image", c.list, c.index)
	switch reason {
	case CodeInvalidImageName:
		return failure{
			code: CodeInvalidImageName, rule: "PH-31", summary: fmt.Sprintf("image name %s is invalid", quote(image)),
			change: "edit " + field, final: true,
		}
	case CodeImageNeverPull:
		return failure{
			code: CodeImageNeverPull, rule: "IMG-18", summary: fmt.Sprintf("image %s is not on the node, and imagePullPolicy is Never", image),
			change: "load the image on the node, or edit imagePullPolicy",
		}
	case CodeImagePull, "ImagePullBackOff", CodeRegistryUnavailable, CodeSignatureInvalid:
		return pullFailure(image, field, reason, message)
	case CodeImageInspect:
		return failure{
			code: CodeImageInspect, rule: "PH-31", summary: "the runtime cannot say whether it has image " + image,
			change: "a container runtime that answers",
		}
	case CodeContainerConfig:
		return failure{
			code: CodeContainerConfig, rule: "PH-31", summary: c.name() + " cannot be configured: " + clean(message, maxQuote),
			change: "create or correct what the container refers to",
		}
	case CodePostStartHook:
		return failure{
			code: CodePostStartHook, rule: "PH-31", summary: "the postStart hook of " + c.name() + " fails",
			change: fmt.Sprintf("correct spec.%s[%d].lifecycle.postStart", c.list, c.index),
		}
	case CodeCreateContainer, CodeRunContainer:
		verb := "created"
		if reason == CodeRunContainer {
			verb = "started"
		}
		return failure{
			code: reason, rule: "PH-31", summary: fmt.Sprintf("%s cannot be %s: %s", c.name(), verb, clean(cause(message), maxQuote)),
			change: "correct command, mounts or security context of " + c.name(),
		}
	default:
		return failure{
			code: CodeStartError, rule: "PH-31", summary: fmt.Sprintf("%s is not started (%s)", c.name(), clean(reason, maxName)),
			change: "correct what the message says",
		}
	}
}

// pullFailure classifies the message of a failed pull. The runtime passes on what the registry said, and the status has nothing
// but this text.
func pullFailure(image, field, reason, message string) failure {
	lower := strings.ToLower(message)
	says := func(phrases ...string) bool {
		for _, phrase := range phrases {
			if strings.Contains(lower, phrase) {
				return true
			}
		}
		return false
	}
	f := failure{rule: "PH-31"}
	switch {
	case reason == CodeSignatureInvalid || says("signaturevalidationfailed", "signature validation failed"):
		f.code, f.summary, f.change = CodeSignatureInvalid, "the signature of image "+image+" is not accepted", "sign the image, or edit "+field
	case says("unauthorized", "authentication required", "access denied", "denied:", "forbidden", "authorization failed"):
		f.code, f.summary, f.change = CodeImageAccessDenied, "access to image "+image+" is denied", "add or correct spec.imagePullSecrets"
		f.rule = "IMG-8"
	case says("not found", "manifest unknown", "name unknown", "repository does not exist"):
		f.code, f.summary, f.change = CodeImageNotFound, "image "+image+" not found", "push the tag, or edit "+field
	case reason == CodeRegistryUnavailable || says("registryunavailable", "no such host", "connection refused", "i/o timeout",
		"deadline exceeded", "network is unreachable", "no route to host", "toomanyrequests", "too many requests", "service unavailable"):
		f.code, f.change = CodeRegistryUnavailable, "a registry that answers this node"
		f.summary = "image " + image + " cannot be pulled: the registry is not available"
	default:
		f.code, f.change = CodeImagePull, "correct what the message says, or edit "+field
		f.summary = "image " + image + " cannot be pulled"
	}
	return f
}

// cause returns the end of the text of a wrapped error: the cause, and what failed because of it.
func cause(message string) string {
	message = strings.TrimSpace(message)
	end := len(message)
	for range 2 {
		if end = strings.LastIndex(message[:end], ": "); end < 0 {
			return message
		}
	}
	return message[end+len(": "):]
}
