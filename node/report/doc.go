// Package report computes the content of a Node object: conditions, addresses, resources and system information, from the
// machine and the object's previous content. It also computes the patches, which keep what others own, the node's events and
// its lease.
package report
