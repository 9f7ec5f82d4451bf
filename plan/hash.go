package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
)

// HashContainer tells versions of a container's spec apart, by name and image only: nothing else of a running container
// may be edited so that it must be replaced. The number is the kubelet's, so that an agent that takes over a node adopts
// the containers that the kubelet made (PW-53).
func HashContainer(c *v1.Container) uint64 {
	hashed, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	if err != nil {
		panic(fmt.Sprintf("plan: two strings have no JSON: %v", err))
	}
	sum := fnv.New32a()
	fmt.Fprintf(sum, "([]uint8)%v", hashed)
	return uint64(sum.Sum32())
}
