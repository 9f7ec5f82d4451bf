package config

import (
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/heraldnode/herald/nodeagent"
)

// Assembly is the configuration as the node needs it.
func (c *Config) Assembly() (nodeagent.Config, error) {
	size := resource.MustParse(c.ContainerLogMaxSize)
	node := nodeagent.Config{
		NodeName: c.NodeName, DataDir: c.DataDir,
		StaticPodPath: c.StaticPodPath, StaticPodURL: c.StaticPodURL, StaticPodURLHeader: http.Header(c.StaticPodURLHeader),
		StaticPodURLCAFile: c.StaticPodURLCAFile, StaticPodURLCertFile: c.StaticPodURLCertFile, StaticPodURLKeyFile: c.StaticPodURLKeyFile,
		FileCheckFrequency: c.FileCheckFrequency, HTTPCheckFrequency: c.HTTPCheckFrequency, SyncFrequency: c.SyncFrequency,
		Runtime: c.Runtime, ContainerRuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageServiceEndpoint: c.ImageServiceEndpoint,
		AllowAPIPods: c.AllowAPIPods, RuntimeRequestTimeout: c.RuntimeRequestTimeout, MaxParallelImagePulls: c.MaxParallelImagePulls,
		SeccompDefault: c.SeccompDefault, AllowedUnsafeSysctls: c.AllowedUnsafeSysctls,
		PodLogsDir: c.PodLogsDir, ContainerLogMaxSize: size.Value(), ContainerLogMaxFiles: c.ContainerLogMaxFiles,
		CgroupRoot: c.CgroupRoot, CgroupDriver: c.CgroupDriver,
		ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain, ResolvConf: c.ResolvConf,
		NodeIP: c.NodeIP, NoRegistration: !c.RegisterNode, NodeLabels: c.NodeLabels, MaxPods: c.MaxPods, ProviderID: c.ProviderID,
		NodeStatusUpdateFrequency: c.NodeStatusUpdateFrequency, NodeStatusReportFrequency: c.NodeStatusReportFrequency,
		NodeLeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second, Reserved: c.reserved(),
		EventQPS: float32(c.EventRecordQPS), EventBurst: c.EventBurst,
	}
	if c.EventRecordQPS == 0 { // the kubelet's word for no limit
		node.EventQPS = -1
	}
	for _, taint := range c.RegisterWithTaints {
		node.RegisterWithTaints = append(node.RegisterWithTaints, v1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	var err error
	node.API, err = c.api()
	return node, err
}

// api is how the API server is reached, or nil.
func (c *Config) api() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	api, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("read the kubeconfig %s: it names no cluster to talk to", c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", c.Kubeconfig, err)
	}
	api.QPS, api.Burst = float32(c.KubeAPIQPS), c.KubeAPIBurst
	return api, nil
}

// reserved is all that pods do not get.
func (c *Config) reserved() v1.ResourceList {
	sum := v1.ResourceList{}
	for _, list := range []map[string]string{c.KubeReserved, c.SystemReserved} {
		for name, quantity := range list {
			total := sum[v1.ResourceName(name)]
			total.Add(resource.MustParse(quantity))
			sum[v1.ResourceName(name)] = total
		}
	}
	return sum
}
