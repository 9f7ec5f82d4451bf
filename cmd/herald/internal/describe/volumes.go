package describe

import v1 "k8s.io/api/core/v1"

func describeVolumes(w *writer, volumes []v1.Volume) {
	if len(volumes) == 0 {
		w.field(0, "Volumes", none)
		return
	}
	w.line(0, "Volumes:")
	for i := range volumes {
		w.line(1, volumes[i].Name+":")
		describeVolume(w, &volumes[i].VolumeSource)
	}
}

func describeVolume(w *writer, volume *v1.VolumeSource) {
	switch {
	case volume.HostPath != nil:
		kind := none
		if volume.HostPath.Type != nil {
			kind = string(*volume.HostPath.Type)
		}
		w.field(2, "Type", "HostPath (bare host directory volume)")
		w.field(2, "Path", volume.HostPath.Path)
		w.field(2, "HostPathType", kind)
	case volume.EmptyDir != nil:
		limit := "<unset>"
		if size := volume.EmptyDir.SizeLimit; size != nil && size.Sign() > 0 {
			limit = size.String()
		}
		w.field(2, "Type", "EmptyDir (a temporary directory that shares a pod's lifetime)")
		w.field(2, "Medium", volume.EmptyDir.Medium)
		w.field(2, "SizeLimit", limit)
	case volume.Secret != nil:
		w.field(2, "Type", "Secret (a volume populated by a Secret)")
		w.field(2, "SecretName", volume.Secret.SecretName)
		w.field(2, "Optional", isSet(volume.Secret.Optional))
	case volume.ConfigMap != nil:
		w.field(2, "Type", "ConfigMap (a volume populated by a ConfigMap)")
		w.field(2, "Name", volume.ConfigMap.Name)
		w.field(2, "Optional", isSet(volume.ConfigMap.Optional))
	case volume.Projected != nil:
		w.field(2, "Type", "Projected (a volume that contains injected data from multiple sources)")
		for i := range volume.Projected.Sources {
			describeProjection(w, &volume.Projected.Sources[i])
		}
	case volume.DownwardAPI != nil:
		w.field(2, "Type", "DownwardAPI (a volume populated by information about the pod)")
		w.line(2, "Items:")
		for _, item := range volume.DownwardAPI.Items {
			if item.FieldRef != nil {
				w.line(3, item.FieldRef.FieldPath+" -> "+item.Path)
			}
			if item.ResourceFieldRef != nil {
				w.line(3, item.ResourceFieldRef.Resource+" -> "+item.Path)
			}
		}
	case volume.PersistentVolumeClaim != nil:
		w.field(2, "Type", "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)")
		w.field(2, "ClaimName", volume.PersistentVolumeClaim.ClaimName)
		w.field(2, "ReadOnly", volume.PersistentVolumeClaim.ReadOnly)
	case volume.Image != nil:
		w.field(2, "Type", "Image (a container image or OCI artifact)")
		w.field(2, "Reference", volume.Image.Reference)
		w.field(2, "PullPolicy", volume.Image.PullPolicy)
	default:
		w.line(1, "<unknown>") // drivers that no agent of one node mounts
	}
}

func describeProjection(w *writer, source *v1.VolumeProjection) {
	switch {
	case source.Secret != nil:
		w.field(2, "SecretName", source.Secret.Name)
		w.field(2, "Optional", isSet(source.Secret.Optional))
	case source.DownwardAPI != nil:
		w.field(2, "DownwardAPI", true)
	case source.ConfigMap != nil:
		w.field(2, "ConfigMapName", source.ConfigMap.Name)
		w.field(2, "Optional", isSet(source.ConfigMap.Optional))
	case source.ServiceAccountToken != nil && source.ServiceAccountToken.ExpirationSeconds != nil:
		w.field(2, "TokenExpirationSeconds", *source.ServiceAccountToken.ExpirationSeconds)
	}
}
