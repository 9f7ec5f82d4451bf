// Package summary turns samples into the Summary of the kubelet's /stats/summary, which monitoring agents and autoscalers read
// (RES-19 to RES-30). It decides only what stands where; package stats measures.
//
// What was not measured is absent. The kubelet writes zeros instead, which cannot be told from an idle container.
package summary
