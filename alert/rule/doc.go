// Package rule reads alert rules: it decodes rule files strictly, compiles their expressions, bounds their cost, and says which changes
// can change the answer of a rule. It has the default rules.
package rule
