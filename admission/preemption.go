package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/derive"
	"github.com/heraldnode/herald/podid"
)

// Shortage is what a pod lacks of a resource, in the kubelet's units.
type Shortage struct {
	Resource v1.ResourceName
	Amount   int64
}

// Others are the pods that occupy a place on the node. Those that are ending leave it within their grace period; the overdue ones should
// have left it.
type Others struct{ Staying, Ending, Overdue []*v1.Pod }

// All returns all of them.
func (o Others) All() []*v1.Pod { return slices.Concat(o.Staying, o.Ending, o.Overdue) }

// CheckWithPreemption is Check for a pod that may lack only resources. It waits for pods that are terminating (ADM-4). A critical pod
// waits for victims, which the caller ends (ADM-26), and not for pods that are overdue (ADM-27).
func CheckWithPreemption(pod *v1.Pod, node Node, others Others) (rejection *Rejection, victims []*v1.Pod) {
	rejection = Check(pod, node, others.All())
	if rejection == nil || len(rejection.Shortages) == 0 {
		return rejection, nil
	}
	staying := others.Staying
	if !derive.IsCritical(pod) {
		staying = slices.Concat(staying, others.Overdue)
	}
	withoutEnding := Check(pod, node, staying)
	switch {
	case withoutEnding == nil && len(others.Ending) == 0:
		return nil, nil
	case withoutEnding == nil:
		return rejection.waitFor(others.Ending, "terminating"), nil
	case !derive.IsCritical(pod):
		return rejection, nil
	}
	victims, err := Victims(pod, withoutEnding.Shortages, staying)
	if err != nil { // ADM-28
		rejection.Remedy += "; " + err.Error()
		return rejection, nil
	}
	return rejection.waitFor(slices.Concat(others.Ending, victims), "preempted or terminating"), victims
}

// waitFor makes the rejection one that the pod survives.
func (r *Rejection) waitFor(pods []*v1.Pod, why string) *Rejection {
	var names []string
	for _, pod := range pods {
		names = append(names, podid.FullNameOf(pod).Key())
	}
	r.Temporary = true
	r.Remedy = fmt.Sprintf("none needed: it waits for %s, %s", strings.Join(names, ", "), why)
	return r
}

// Victims returns the pods that have to end so that the critical pod gets what it lacks: as few guaranteed ones as possible if all
// burstable and best-effort ones went, then as few burstable ones, then as few best-effort ones (ADM-26). It returns an error with the
// kubelet's text if all that it may preempt do not suffice (ADM-28), and none if the pod is not critical.
func Victims(pod *v1.Pod, lacks []Shortage, others []*v1.Pod) ([]*v1.Pod, error) {
	if !derive.IsCritical(pod) || len(lacks) == 0 {
		return nil, nil
	}
	byClass := map[v1.PodQOSClass][]*v1.Pod{}
	var all []*v1.Pod
	for _, other := range others {
		if preempts(pod, other) {
			class := derive.QOSClass(other)
			byClass[class], all = append(byClass[class], other), append(all, other)
		}
	}
	if rest := without(lacks, all); len(rest) > 0 {
		return nil, fmt.Errorf("preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: %s",
			describe(rest))
	}
	bestEffort, burstable := byClass[v1.PodQOSBestEffort], byClass[v1.PodQOSBurstable]
	guaranteedVictims := nearest(byClass[v1.PodQOSGuaranteed], without(lacks, slices.Concat(bestEffort, burstable)))
	burstableVictims := nearest(burstable, without(lacks, slices.Concat(bestEffort, guaranteedVictims)))
	bestEffortVictims := nearest(bestEffort, without(lacks, slices.Concat(burstableVictims, guaranteedVictims)))
	return slices.Concat(bestEffortVictims, burstableVictims, guaranteedVictims), nil
}

// preempts reports whether a critical pod may end the other one.
func preempts(pod, other *v1.Pod) bool {
	if !derive.IsCritical(other) {
		return true
	}
	return pod.Spec.Priority != nil && other.Spec.Priority != nil && *pod.Spec.Priority > *other.Spec.Priority
}

// without returns what is still lacking once the pods have ended.
func without(lacks []Shortage, pods []*v1.Pod) []Shortage {
	var rest []Shortage
	for _, lack := range lacks {
		for _, pod := range pods {
			lack.Amount -= request(pod, lack.Resource)
		}
		if lack.Amount > 0 {
			rest = append(rest, lack)
		}
	}
	return rest
}

// nearest returns few of the pods that suffice: again and again the one that leaves the least. The pods must suffice together.
func nearest(pods []*v1.Pod, lacks []Shortage) []*v1.Pod {
	pods = slices.Clone(pods)
	var victims []*v1.Pod
	for len(lacks) > 0 && len(pods) > 0 {
		best := 0
		for i := 1; i < len(pods); i++ {
			d, least := distance(pods[i], lacks), distance(pods[best], lacks)
			if d < least || d == least && !isLarger(pods[i], pods[best]) {
				best = i
			}
		}
		lacks = without(lacks, pods[best:best+1])
		victims = append(victims, pods[best])
		pods[best] = pods[len(pods)-1] // in the kubelet's order, which decides between equal pods
		pods = pods[:len(pods)-1]
	}
	return victims
}

// distance is the sum of the squared parts of the shortages that the pod's end leaves.
func distance(pod *v1.Pod, lacks []Shortage) float64 {
	sum := 0.0
	for _, lack := range lacks {
		if rest := float64(lack.Amount - request(pod, lack.Resource)); rest > 0 {
			part := rest / float64(lack.Amount)
			sum += part * part
		}
	}
	return sum
}

// isLarger reports whether the first pod requests more memory than the second, or as much memory and more CPU.
func isLarger(a, b *v1.Pod) bool {
	if x, y := request(a, v1.ResourceMemory), request(b, v1.ResourceMemory); x != y {
		return x > y
	}
	return request(a, v1.ResourceCPU) > request(b, v1.ResourceCPU)
}

func describe(lacks []Shortage) string {
	var text strings.Builder
	for _, lack := range lacks {
		fmt.Fprintf(&text, "(res: %s, q: %d), ", lack.Resource, lack.Amount)
	}
	return "[" + text.String() + "]"
}
