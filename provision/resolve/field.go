package resolve

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// MetadataField is a field of the pod's metadata, as a downwardAPI volume shows it: name, namespace, uid, one label or
// annotation, or all of them, a line for each.
func MetadataField(pod *v1.Pod, ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("fieldRef.apiVersion: %q is not v1", ref.APIVersion)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	switch path, key, _ := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['"); {
	case path+"['"+key+"']" != ref.FieldPath || key == "":
	case path == "metadata.labels":
		return pod.Labels[key], nil
	case path == "metadata.annotations":
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("fieldRef.fieldPath: %q is not known here", ref.FieldPath)
}

func lines(values map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, key+"="+strconv.Quote(values[key]))
	}
	return strings.Join(all, "\n")
}

// Addresses are those that a container may ask for.
type Addresses struct {
	// Host are the node's, the primary one first.
	Host []netip.Addr
	// Pod are the pod's, in any order.
	Pod []netip.Addr
}

// PodField is a field of the pod as a variable shows it: the metadata, and what is known when a container starts.
func PodField(pod *v1.Pod, ref *v1.ObjectFieldSelector, addresses Addresses) (string, error) {
	switch ref.FieldPath {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		if len(addresses.Host) == 0 {
			return "", fmt.Errorf("fieldRef.fieldPath: %s: the node's address is not known yet", ref.FieldPath)
		}
		return joined(addresses.Host, ref.FieldPath == "status.hostIPs"), nil
	case "status.podIP", "status.podIPs":
		return joined(addresses.podsInOrder(), ref.FieldPath == "status.podIPs"), nil
	}
	return MetadataField(pod, ref)
}

func joined(addresses []netip.Addr, all bool) string {
	if !all {
		addresses = addresses[:min(1, len(addresses))]
	}
	texts := make([]string, 0, len(addresses))
	for _, address := range addresses {
		texts = append(texts, address.String())
	}
	return strings.Join(texts, ",")
}

// podsInOrder begins with the family of the node's primary address.
func (a Addresses) podsInOrder() []netip.Addr {
	wants6 := len(a.Host) > 0 && a.Host[0].Unmap().Is6()
	first := slices.DeleteFunc(slices.Clone(a.Pod), func(ip netip.Addr) bool { return ip.Unmap().Is6() != wants6 })
	second := slices.DeleteFunc(slices.Clone(a.Pod), func(ip netip.Addr) bool { return ip.Unmap().Is6() == wants6 })
	return append(first, second...)
}
