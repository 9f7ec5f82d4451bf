package cri

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// imageRequest is one container's asking for its image; nil stands for what was not found out.
type imageRequest struct {
	policy        v1.PullPolicy
	present, pull *bool
}

func (m *metrics) countImageRequest(r imageRequest) {
	m.imageRequests.WithLabelValues(strings.ToLower(string(r.policy)), orUnknown(r.present), orUnknown(r.pull)).Inc()
}

func orUnknown(answer *bool) string {
	if answer == nil {
		return "unknown"
	}
	return strconv.FormatBool(*answer)
}

// sizeLabel is the kubelet's name for the order of an image's size.
func sizeLabel(bytes uint64) string {
	const mega, giga = 1 << 20, 1 << 30
	if bytes == 0 {
		return "N/A"
	}
	for _, order := range []struct {
		upTo  uint64
		label string
	}{
		{10 * mega, "0-10MB"}, {100 * mega, "10MB-100MB"}, {500 * mega, "100MB-500MB"}, {giga, "500MB-1GB"},
		{5 * giga, "1GB-5GB"}, {10 * giga, "5GB-10GB"}, {20 * giga, "10GB-20GB"}, {30 * giga, "20GB-30GB"},
		{40 * giga, "30GB-40GB"}, {60 * giga, "40GB-60GB"}, {100 * giga, "60GB-100GB"},
	} {
		if bytes <= order.upTo {
			return order.label
		}
	}
	return "GT100GB"
}
