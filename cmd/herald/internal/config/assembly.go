package config

import (
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/assembly"
)

// Assembly is the configuration as the node needs it.
func (c *Config) Assembly() (assembly.Config, error) {
	node := assembly.Config{
		NodeName: c.NodeName, DataDir: c.DataDir,
		StaticPodPath: c.StaticPodPath, StaticPodURL: c.StaticPodURL, StaticPodURLHeader: http.Header(c.StaticPodURLHeader),
		StaticPodURLCAFile: c.StaticPodURLCAFile, StaticPodURLCertFile: c.StaticPodURLCertFile, StaticPodURLKeyFile: c.StaticPodURLKeyFile,
		FileCheckFrequency: c.FileCheckFrequency, HTTPCheckFrequency: c.HTTPCheckFrequency,
		Runtime: c.Runtime, ContainerRuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageServiceEndpoint: c.ImageServiceEndpoint,
		AllowAPIPods: c.AllowAPIPods, PodLogsDir: c.PodLogsDir, CgroupRoot: c.CgroupRoot,
		ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain,
		NodeIP: c.NodeIP, NoRegistration: !c.RegisterNode, NodeLabels: c.NodeLabels, MaxPods: c.MaxPods,
	}
	for _, taint := range c.RegisterWithTaints {
		node.RegisterWithTaints = append(node.RegisterWithTaints, v1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	if c.Kubeconfig == "" {
		return node, nil
	}
	api, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return node, fmt.Errorf("read the kubeconfig %s: %w", c.Kubeconfig, err)
	}
	api.QPS, api.Burst = float32(c.KubeAPIQPS), c.KubeAPIBurst
	node.API = api
	return node, nil
}
