package pod

import (
	"hash/fnv"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"

	"github.com/heraldnode/herald/podid"
)

// patience is how long a failed name waits. A server in trouble is asked again soon; one that said no is asked seldom,
// because an operator must act first, but for ever, so that it heals without a restart. Any worker may use it.
type patience struct {
	trouble, refusal workqueue.TypedRateLimiter[podid.FullName]
}

func newPatience() patience {
	return patience{
		trouble: workqueue.NewTypedItemExponentialFailureRateLimiter[podid.FullName](250*time.Millisecond, 30*time.Second),
		refusal: workqueue.NewTypedItemExponentialFailureRateLimiter[podid.FullName](5*time.Second, 2*time.Minute),
	}
}

// after counts a failure of the name and returns the time to wait.
func (p patience) after(name podid.FullName, err error) time.Duration {
	limiter := p.trouble
	if isFinal(err) {
		limiter = p.refusal
	}
	attempt := limiter.NumRequeues(name)
	return jitter(limiter.When(name), name.String(), attempt)
}

// forget starts the name's count anew.
func (p patience) forget(name podid.FullName) {
	p.trouble.Forget(name)
	p.refusal.Forget(name)
}

// jitter adds up to a quarter. It is drawn from the key and the attempt: names differ between pods and, as they carry
// the node's, between nodes, so that neither come back in step; and a run can be repeated exactly.
func jitter(delay time.Duration, key string, attempt int) time.Duration {
	hash := fnv.New32a()
	hash.Write([]byte(key + "/" + strconv.Itoa(attempt)))
	return delay + delay/4*time.Duration(hash.Sum32()%1024)/1024
}

// suggestedDelay is the Retry-After of the server's answer, or 0. More than five minutes are not believed.
func suggestedDelay(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, 5*time.Minute)
}
