// Package explain says why a pod is as it is: why it is not Ready, not Running, not deleted, or restarting. Its answer is the first
// match of a decision tree over facts that the caller collected. It never contradicts the pod's status. Pure: the time is a fact.
package explain
