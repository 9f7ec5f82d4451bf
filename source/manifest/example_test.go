package manifest_test

import (
	"fmt"
	"strings"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// A manifest is rejected as a whole, with the line and field of every mistake, so that the caller can keep the last valid version.
func ExampleDecode() {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: main, image: nginx}\n"
	origin := manifest.Origin{Location: "web.yaml", Source: podid.File, NodeName: "edge-1"}
	pods, err := manifest.Decode([]byte(text), origin)
	fmt.Println(pods[0].Name, pods[0].Spec.RestartPolicy, err)

	_, err = manifest.Decode([]byte(strings.Replace(text, "image", "imgae", 1)), origin)
	fmt.Println(err)
	// Output:
	// web-edge-1 Always <nil>
	// web.yaml:6: spec.containers[0].imgae: unknown field
}
