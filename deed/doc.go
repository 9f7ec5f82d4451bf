// Package deed carries out the actions that package action decides about: snapshots of pods, checks of probes, restarts, evictions, the
// cordon of the node, webhooks and programs of the operator. Nothing here decides whether an action is allowed; what the API server or the
// worker refuses is reported as action.ErrRefused.
package deed
