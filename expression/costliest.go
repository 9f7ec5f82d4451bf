package expression

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
)

// Part is a part of an expression.
type Part struct {
	Text string
	// Line and Column start at 1.
	Line, Column int
	// MaxCost is the cost of the worst case of the part alone.
	MaxCost uint64
}

// costliest returns the operand of && and || that costs most: the whole expression if it has none.
func costliest(checked *ast.AST) Part {
	found := Part{Line: 1, Column: 1}
	for _, operand := range operands(checked.Expr(), nil) {
		part := ast.NewCheckedAST(ast.NewAST(operand, checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
		estimate, err := cost.Cost(part, sizes{})
		if err != nil || estimate.Max < found.MaxCost || found.Text != "" && estimate.Max == found.MaxCost {
			continue
		}
		text, err := cel.ExprToString(operand, checked.SourceInfo())
		if err != nil {
			continue
		}
		at := checked.SourceInfo().GetStartLocation(firstID(operand))
		found = Part{Text: text, Line: max(1, at.Line()), Column: max(0, at.Column()) + 1, MaxCost: estimate.Max}
	}
	return found
}

func operands(expr ast.Expr, all []ast.Expr) []ast.Expr {
	if expr.Kind() != ast.CallKind {
		return append(all, expr)
	}
	switch call := expr.AsCall(); call.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr:
		for _, operand := range call.Args() {
			all = operands(operand, all)
		}
		return all
	default:
		return append(all, expr)
	}
}

// firstID returns the ID of the part of an expression that stands first: the position of a call is that of its operator.
func firstID(expr ast.Expr) int64 {
	for {
		switch expr.Kind() {
		case ast.SelectKind:
			expr = expr.AsSelect().Operand()
		case ast.ComprehensionKind:
			expr = expr.AsComprehension().IterRange()
		case ast.CallKind:
			call := expr.AsCall()
			switch isInfix := len(call.Args()) == 2 && !call.IsMemberFunction(); {
			case call.IsMemberFunction():
				expr = call.Target()
			case isInfix && operators.Arity(call.FunctionName()) == 2:
				expr = call.Args()[0]
			default:
				return expr.ID()
			}
		default:
			return expr.ID()
		}
	}
}
