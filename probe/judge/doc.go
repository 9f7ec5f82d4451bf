// Package judge decides for one probe of one container: whether it is to be checked now, when to look again, and what the
// results of its checks mean. It knows no clock and no network.
//
//	              container seen                  startup passed, delay over, running
//	(no container) ------------> undecided <----> checked each period
//	                                 |                      |
//	                                 |   failureThreshold failures, successThreshold successes in a row
//	                                 v                      v
//	                  another container seen  <------ passed / failed
//
// A liveness probe that failed and a startup probe that decided rest until another container is seen (PRB-20).
package judge
