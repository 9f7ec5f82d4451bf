package checkpoint_test

import (
	"bytes"
	"testing"

	"github.com/heraldnode/herald/checkpoint"
)

// FuzzDecode holds the decoder to F18: no input makes it panic, and what it accepts is, byte for byte, what Save writes.
func FuzzDecode(f *testing.F) {
	f.Add("status", good)
	f.Add("status", good[:len(good)-1])
	f.Add("status", checkpoint.Encode("status", 2, nil))
	f.Add("status", []byte(`{"checkpoint":2}`+"\n"))
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		payload, version, err := checkpoint.Decode(name, data)
		if err == nil && (version < 1 || !bytes.Equal(checkpoint.Encode(name, version, payload), data)) {
			t.Fatalf("accepted %q", data)
		}
		if made := checkpoint.Encode("status", 1, data); !bytes.HasSuffix(made, data) {
			t.Fatal("the payload is not the end of the file")
		} else if payload, _, err := checkpoint.Decode("status", made); err != nil || !bytes.Equal(payload, data) {
			t.Fatalf("decoded %q: %v", payload, err)
		}
	})
}
