package load

import "math"

// Value is a number that may be unknown. The zero value is unknown.
type Value struct {
	number float64
	known  bool
}

// Known returns a known value. A number that is not finite is unknown.
func Known(number float64) Value {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return Value{}
	}
	return Value{number: number, known: true}
}

// Get returns the number, and false if it is unknown.
func (v Value) Get() (float64, bool) { return v.number, v.known }

// IsKnown reports whether the value is known.
func (v Value) IsKnown() bool { return v.known }

// Share returns v/total. It is unknown if one of them is, or if total is not positive.
func (v Value) Share(total Value) Value {
	if !v.known || !total.known || total.number <= 0 {
		return Value{}
	}
	return Known(v.number / total.number)
}

// Plus returns the sum. It is unknown if one of them is.
func (v Value) Plus(other Value) Value {
	if !v.known || !other.known {
		return Value{}
	}
	return Known(v.number + other.number)
}

// larger returns the larger of the known values.
func larger(a, b Value) Value {
	if !a.known || (b.known && b.number > a.number) {
		return b
	}
	return a
}
