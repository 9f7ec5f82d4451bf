package image_test

import (
	"strings"
	"testing"

	"github.com/heraldnode/herald/internal/image"
)

func TestANameIsReadAsUsersMeanIt(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	tests := map[string]image.Name{
		"busybox":                      {Repository: "docker.io/library/busybox"},
		"index.docker.io/busybox":      {Repository: "docker.io/library/busybox"},
		"team/app:v1":                  {Repository: "docker.io/team/app", Tag: "v1"},
		"localhost/app@" + digest:      {Repository: "localhost/app", Digest: digest},
		"reg.io:5000/a/b:v1@" + digest: {Repository: "reg.io:5000/a/b", Tag: "v1", Digest: digest},
	}
	for written, want := range tests {
		got, err := image.Parse(written)
		if err != nil || got.Repository != want.Repository || got.Tag != want.Tag || got.Digest != want.Digest {
			t.Errorf("%s: %+v, %v", written, got, err)
		}
		tagged := written
		if want.Tag == "" && want.Digest == "" {
			tagged += ":latest"
		}
		if got.Tagged() != tagged {
			t.Errorf("%s: with its tag it is %s", written, got.Tagged())
		}
	}
	for _, written := range []string{"", "App", "a//b", "app:", digest[7:], "reg.io/" + strings.Repeat("a", 256)} {
		if name, err := image.Parse(written); err == nil {
			t.Errorf("%q is read as %+v", written, name)
		}
	}
}
