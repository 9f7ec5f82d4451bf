// Package notify delivers alerts to their receivers: Alertmanager, webhooks, Kubernetes Events and the log. A receiver is called a sink.
//
// Delivery compares levels; it is not a queue of messages. For every sink and alert, a Notifier knows what the sink has acknowledged last,
// firing or resolved and of which episode. What differs from the alert as it is now is sent until it is acknowledged. So memory is bounded
// by the number of alerts, however long a sink is unreachable, and what a sink is told after an outage is the present.
//
// The guarantee is: at least once, firing before resolved, per alert and sink, over restarts. An episode that began and ended while a sink
// was unreachable is still told: first as firing, then as resolved. What was acknowledged is in the checkpoint "notify"; what a crash loses
// of it is told again.
//
// The caller must
//
//  1. call Update with every alert that changed, after the change is durable;
//  2. after a restart call Update with the restored alerts, and Reconcile with all alerts as soon as it knows them, so that what was told
//     as firing and does not exist any more is resolved;
//  3. call Run.
package notify
