// Package restart says whether a container that has ended is started again, by its own rules and policy and by its pod's.
package restart
