// Package remedy decides whether an action that a rule asks for is carried out: Decide compares the policy of the action with what was
// done before and with what is known about the object, and answers do, dry-run or refuse. It is pure.
package remedy
