package image_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/image"
)

func TestParse(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	longDigest := "sha512:" + strings.Repeat("a", 128)
	tests := map[string]struct {
		repository, tag, digest string
		tagged                  string // "" if it equals the name
		latest                  bool
	}{
		"busybox":                      {repository: "docker.io/library/busybox", tagged: "busybox:latest", latest: true},
		"busybox:latest":               {repository: "docker.io/library/busybox", tag: "latest", latest: true},
		"index.docker.io/busybox":      {repository: "docker.io/library/busybox", tagged: "index.docker.io/busybox:latest", latest: true},
		"team/app:v1":                  {repository: "docker.io/team/app", tag: "v1"},
		"localhost/app@" + digest:      {repository: "localhost/app", digest: digest},
		"app@" + longDigest:            {repository: "docker.io/library/app", digest: longDigest},
		"reg.io:5000/a/b:v1@" + digest: {repository: "reg.io:5000/a/b", tag: "v1", digest: digest},
	}
	for original, want := range tests {
		t.Run(original, func(t *testing.T) {
			name, err := image.Parse(original)
			if err != nil {
				t.Fatal(err)
			}
			if name.Repository != want.repository || name.Tag != want.tag || name.Digest != want.digest {
				t.Errorf("got %+v, want %+v", name, want)
			}
			if want.tagged == "" {
				want.tagged = original
			}
			if got := name.Tagged(); got != want.tagged {
				t.Errorf("tagged: got %s, want %s", got, want.tagged)
			}
			if got := name.IsLatest(); got != want.latest {
				t.Errorf("latest: got %t, want %t", got, want.latest)
			}
		})
	}
}

func TestParse_Invalid(t *testing.T) {
	id := strings.Repeat("a", 64)
	for _, original := range []string{"", "App", "a//b", "app:", id, "reg.io/" + strings.Repeat("a", 256), "app@md5:" + id[:32]} {
		if name, err := image.Parse(original); err == nil {
			t.Errorf("%q: got %+v, want an error", original, name)
		}
	}
}
