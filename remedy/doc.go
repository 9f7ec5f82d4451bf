// Package remedy decides whether an action that a rule asks for is carried out. Decide compares the policy of the action with the Ledger of
// what was done before and with the Facts about the object, and answers do, dry-run or refuse. A Breaker says when too many pods fail at
// once for any of them to be the cause. It is pure.
//
// Some rules apply whatever the policy says, see Decide: a rule file cannot allow more than they do.
package remedy
