package view

// Loads has the use of resources of the node and its pods at one time, the object of the topic load of a watch.
type Loads struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Loads
	// Node is absent if the agent does not measure it.
	Node *NodeLoad `json:"node,omitempty"`
	// Pods has the selected pods that were measured.
	Pods []LoadOfPod `json:"pods"`
}

// LoadOfPod is the use of resources of one pod.
type LoadOfPod struct {
	Metadata Metadata `json:"metadata"`
	Load     PodLoad  `json:"load"`
}

// NewLoads collects the loads of views.
func NewLoads(node *NodeLoad, pods []PodView) Loads {
	loads := Loads{APIVersion: APIVersion, Kind: "Loads", Node: node, Pods: []LoadOfPod{}}
	for i := range pods {
		if pods[i].Load != nil {
			loads.Pods = append(loads.Pods, LoadOfPod{Metadata: pods[i].Metadata, Load: *pods[i].Load})
		}
	}
	return loads
}
