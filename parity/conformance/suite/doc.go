// Package suite is Kubernetes' end-to-end test suite with the specs of test/e2e/common and test/e2e/node: those that test a node's agent.
// Its test binary is upstream's e2e.test without the other specs, which would double the time of the build.
package suite
