package heraldtest

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched applies a patch to a copy of the object.
func patched(at key, kind types.PatchType, old object, patch []byte) (object, error) {
	original, err := json.Marshal(old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var merged []byte
	switch kind {
	case types.StrategicMergePatchType:
		merged, err = strategicpatch.StrategicMergePatch(original, patch, at.resource.empty())
	case types.MergePatchType:
		merged, err = mergePatch(original, patch)
	default:
		return nil, unsupportedPatch(kind)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	updated := at.resource.empty()
	if err := json.Unmarshal(merged, updated); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return updated, nil
}

// mergePatch is RFC 7386.
func mergePatch(original, patch []byte) ([]byte, error) {
	var target, changes map[string]any
	if err := json.Unmarshal(original, &target); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, err
	}
	return json.Marshal(mergeMaps(target, changes))
}

func mergeMaps(target, changes map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for name, value := range changes {
		switch value := value.(type) {
		case nil:
			delete(target, name)
		case map[string]any:
			below, _ := target[name].(map[string]any)
			target[name] = mergeMaps(below, value)
		default:
			target[name] = value
		}
	}
	return target
}

func unsupportedPatch(kind types.PatchType) error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, fmt.Sprintf(
		"patches of type %q are not known here, only %s and %s", kind, types.StrategicMergePatchType, types.MergePatchType))
}
