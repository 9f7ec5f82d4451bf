// Package action carries out the actions of alert rules. An Actor is told which alerts fire, asks package remedy what may be done about
// them, and does it through Deeds.
//
// Guarantees:
//   - Before a deed begins, its intent is in the ledger on disk. After it, its outcome is written. A deed that was under way when the agent
//     ended is unknown: it counts against the limits and is not repeated.
//   - A dry-run writes everything down and does nothing.
//   - If the ledger cannot be written, nothing is done. If it was damaged, disruptive actions are suspended.
//   - Disruptive actions happen one at a time.
//   - A node that an action made unschedulable is made schedulable when the alerts that asked for it are resolved.
package action
