package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// leafOf says how a value of a type that has no fields of its own is checked; false for structs, maps and lists.
func leafOf(t reflect.Type) (func(any) error, bool) {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return checkQuantity, true
	case reflect.TypeFor[intstr.IntOrString]():
		return checkIntOrString, true
	case reflect.TypeFor[metav1.FieldsV1](): // free-form, and discarded
		return func(any) error { return nil }, true
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return func(value any) error { return checkUnmarshal(t, value) }, true
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool:
		return func(value any) error {
			if reflect.TypeOf(value).Kind() != t.Kind() || isNumber(value) {
				return wrongType(t, value)
			}
			return nil
		}, true
	case reflect.Int32, reflect.Int64:
		return func(value any) error { return checkInteger(t, value) }, true
	}
	return nil, false
}

func checkInteger(t reflect.Type, value any) error {
	number, ok := value.(json.Number)
	if !ok {
		return wrongType(t, value)
	}
	if _, err := strconv.ParseInt(number.String(), 10, t.Bits()); err != nil {
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is out of range", clip(number.String()))
		}
		return fmt.Errorf("must be a whole number, not %s", clip(number.String()))
	}
	return nil
}

// reasonableQuantity leaves out what costs minutes to parse, such as 1e-100000000, and what nobody has.
var reasonableQuantity = regexp.MustCompile(`^[^eE]{0,40}([eE][-+]?[0-9]{0,2}|Ei?)?$`)

func checkQuantity(value any) error {
	var text string
	switch value := value.(type) {
	case string:
		text = value
	case json.Number:
		text = value.String()
	default:
		return fmt.Errorf("must be a quantity, not %s", describe(value))
	}
	if !reasonableQuantity.MatchString(text) {
		return fmt.Errorf("%s is not a quantity; write 500m, 2 or 64Mi, for example", clip(text))
	}
	if _, err := resource.ParseQuantity(text); err != nil {
		return fmt.Errorf("%q is not a quantity; write 500m, 2 or 64Mi, for example", clip(text))
	}
	return nil
}

func checkIntOrString(value any) error {
	if _, isText := value.(string); isText {
		return nil
	}
	if !isNumber(value) {
		return fmt.Errorf("must be a number or a string, not %s", describe(value))
	}
	return checkInteger(reflect.TypeFor[int32](), value)
}

// checkUnmarshal lets a type that has its own idea of JSON say whether it takes the value.
func checkUnmarshal(t reflect.Type, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err != nil {
		return fmt.Errorf("%s is not a valid %s", describe(value), t.Name())
	}
	return nil
}

func isNumber(value any) bool {
	_, is := value.(json.Number)
	return is
}

// wrongType tells what is wanted and what is there. Most often it is YAML that made a number or a boolean of a text.
func wrongType(t reflect.Type, value any) error {
	wanted := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Int32: "a whole number",
		reflect.Int64: "a whole number", reflect.Slice: "a list", reflect.Map: "a mapping", reflect.Struct: "a mapping",
	}[t.Kind()]
	_, isBool := value.(bool)
	if t.Kind() == reflect.String && (isBool || isNumber(value)) {
		return fmt.Errorf("must be a string, but YAML reads it as %s; put it in quotes", describe(value))
	}
	return fmt.Errorf("must be %s, not %s", wanted, describe(value))
}

func describe(value any) string {
	switch value := value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return "the boolean " + strconv.FormatBool(value)
	case json.Number:
		return "the number " + clip(value.String())
	default:
		return fmt.Sprintf("the string %q", clip(fmt.Sprint(value)))
	}
}
