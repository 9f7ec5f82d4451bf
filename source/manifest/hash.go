package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// hashVersion identifies the algorithm of computeUID. A change of the algorithm or its input restarts every static pod of
// every node that upgrades, and needs a new version (BUG-20).
const hashVersion = "h1"

// computeUID returns the UID of a pod without metadata.uid: 128 bits of SHA-256 over the canonical JSON of version, node,
// source and manifest. The location is not included, so that a renamed file restarts nothing. Two pods of a node cannot
// have the same full name in any case (CFG-2).
func computeUID(value map[string]any, origin Origin) types.UID {
	text := appendCanonical(nil, []any{hashVersion, origin.NodeName, string(origin.Source), value})
	sum := sha256.Sum256(text)
	return types.UID(hashVersion + "-" + hex.EncodeToString(sum[:16]))
}

// appendCanonical appends the canonical JSON of a value: no whitespace, sorted keys, and only the escapes that JSON requires.
// It does not use encoding/json, whose escapes changed between versions of Go.
func appendCanonical(text []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(text, "null"...)
	case bool:
		return strconv.AppendBool(text, value)
	case json.Number:
		return append(text, value...)
	case string:
		return appendString(text, value)
	case []any:
		text = append(text, '[')
		for i, element := range value {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendCanonical(text, element)
		}
		return append(text, ']')
	case map[string]any:
		text = append(text, '{')
		for i, key := range slices.Sorted(maps.Keys(value)) {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(appendString(text, key), ':')
			text = appendCanonical(text, value[key])
		}
		return append(text, '}')
	}
	panic(fmt.Sprintf("manifest: unexpected %T in a decoded document", value))
}

func appendString(text []byte, s string) []byte {
	text = append(text, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			text = append(text, '\\', byte(r))
		case r < ' ':
			text = fmt.Appendf(text, `\u%04x`, r)
		default:
			text = utf8.AppendRune(text, r)
		}
	}
	return append(text, '"')
}
