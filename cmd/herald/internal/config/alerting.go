package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/heraldnode/herald/deed"
	"github.com/heraldnode/herald/nodeagent"
	"github.com/heraldnode/herald/notify"
)

func (a *Alerting) validate(v *validator) {
	if a.ExternalURL != "" {
		v.rejectIf(!isHTTP(a.ExternalURL), "alerting.externalURL", "invalid value %q: must be an http or https URL", a.ExternalURL)
	}
	for i, path := range a.RuleFiles {
		v.rejectIf(path == "", fmt.Sprintf("alerting.ruleFiles[%d]", i), "must not be empty")
	}
	for i := range a.Alertmanagers {
		manager, path := &a.Alertmanagers[i], fmt.Sprintf("alerting.alertmanagers[%d]", i)
		v.rejectIf(!isHTTP(manager.URL), path+".url",
			"invalid value %q: must be an http or https URL, like http://alertmanager:9093", manager.URL)
		v.rejectIf((manager.Username == "") != (manager.PasswordFile == ""), path, "username and passwordFile must be set together")
		v.rejectIf((manager.CertFile == "") != (manager.KeyFile == ""), path, "certFile and keyFile must be set together")
		v.rejectIf(manager.Timeout < 0, path+".timeout", "invalid value %v: must not be negative", manager.Timeout)
	}
	for i := range a.Webhooks {
		webhook, path := &a.Webhooks[i], fmt.Sprintf("alerting.webhooks[%d]", i)
		isSame := func(other Webhook) bool { return other.Name == webhook.Name }
		v.rejectIf(webhook.Name == "", path+".name", "must not be empty")
		v.rejectIf(slices.ContainsFunc(a.Webhooks[:i], isSame), path+".name", "duplicate name %q: must be unique", webhook.Name)
		v.rejectIf(!isSafeURL(webhook.URL), path+".url",
			"invalid value %q: must be an https URL, or http with a loopback address, because alerts contain logs", webhook.URL)
		v.rejectIf((webhook.CertFile == "") != (webhook.KeyFile == ""), path, "certFile and keyFile must be set together")
		v.rejectIf(webhook.Timeout < 0, path+".timeout", "invalid value %v: must not be negative", webhook.Timeout)
	}
	for i := range a.Programs {
		program, path := &a.Programs[i], fmt.Sprintf("alerting.programs[%d]", i)
		isSame := func(other Program) bool { return other.Name == program.Name }
		v.rejectIf(program.Name == "", path+".name", "must not be empty")
		v.rejectIf(slices.ContainsFunc(a.Programs[:i], isSame), path+".name", "duplicate name %q: must be unique", program.Name)
		v.rejectIf(!filepath.IsAbs(program.Path), path+".path", "invalid value %q: must be an absolute path", program.Path)
	}
}

func isHTTP(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Host != "" && parsed.User == nil
}

// isSafeURL reports whether nobody else can read what is sent to the URL.
func isSafeURL(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || !isHTTP(text) {
		return false
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Scheme == "https" || parsed.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

func (a *Alerting) nodeAgentConfig() nodeagent.AlertingConfig {
	converted := nodeagent.AlertingConfig{
		Disabled: !a.Enabled, RuleFiles: a.RuleFiles, NoDefaults: !a.Defaults, Disable: a.Disable, ExternalURL: a.ExternalURL,
		NoEvents: !a.Events, DryRun: a.DryRun,
	}
	for _, program := range a.Programs {
		converted.Programs = append(converted.Programs, deed.Program{
			Name: program.Name, Path: program.Path, Args: program.Args, User: program.User,
		})
	}
	for _, manager := range a.Alertmanagers {
		converted.Alertmanagers = append(converted.Alertmanagers, notify.Alertmanager{HTTP: notify.HTTP{
			URL: manager.URL, Username: manager.Username, PasswordFile: manager.PasswordFile, TokenFile: manager.TokenFile,
			CAFile: manager.CAFile, CertFile: manager.CertFile, KeyFile: manager.KeyFile, Timeout: manager.Timeout,
		}})
	}
	for _, webhook := range a.Webhooks {
		converted.Webhooks = append(converted.Webhooks, notify.Webhook{Name: webhook.Name, SecretFile: webhook.SecretFile, HTTP: notify.HTTP{
			URL: webhook.URL, TokenFile: webhook.TokenFile, CAFile: webhook.CAFile, CertFile: webhook.CertFile, KeyFile: webhook.KeyFile,
			Timeout: webhook.Timeout,
		}})
	}
	return converted
}
