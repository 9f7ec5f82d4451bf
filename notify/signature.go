package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader is the header with the signature of a webhook message: the time in seconds, and for each secret the hexadecimal
// HMAC-SHA256 of that time, a colon and the body. For example: t=1794916800,v1=5257a8...
const SignatureHeader = "X-Herald-Signature"

const maxSecrets = 2

// sign returns the value of SignatureHeader.
func sign(secrets []string, body []byte, now time.Time) string {
	at := strconv.FormatInt(now.Unix(), 10)
	value := "t=" + at
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(at + ":"))
		mac.Write(body)
		value += ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	return value
}

// readSecrets reads one or two secrets. The file is read for each message, so that a rotation needs no restart.
func readSecrets(path string) ([]string, error) {
	text, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	var secrets []string
	for line := range strings.Lines(text) {
		if secret := strings.TrimSpace(line); secret != "" {
			secrets = append(secrets, secret)
		}
	}
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("%s has %d secrets, at most %d are allowed", path, len(secrets), maxSecrets)
	}
	return secrets, nil
}
