package cases

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// lookup gives a variable's text.
type lookup func(name string) (string, error)

// expand returns a copy of v in which every <<NAME>> in every text is what look
// gives for it. The first name that is not known is the error.
func expand[T any](v T, look lookup) (T, error) {
	x := &expansion{look: look}
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	x.copy(out, reflect.ValueOf(&v).Elem())
	return out.Interface().(T), x.err
}

type expansion struct {
	look lookup
	err  error
}

func (x *expansion) copy(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.String:
		to.SetString(x.text(from.String()))
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			x.copy(to.Elem(), from.Elem())
		}
	case reflect.Interface:
		if !from.IsNil() {
			inner := reflect.New(from.Elem().Type()).Elem()
			x.copy(inner, from.Elem())
			to.Set(inner)
		}
	case reflect.Struct:
		for i := range from.NumField() {
			x.copy(to.Field(i), from.Field(i))
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		}
		for i := range from.Len() {
			x.copy(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		x.copyMap(to, from)
	default:
		to.Set(from)
	}
}

func (x *expansion) copyMap(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	to.Set(reflect.MakeMap(from.Type()))
	for _, key := range from.MapKeys() {
		k, v := reflect.New(key.Type()).Elem(), reflect.New(from.Type().Elem()).Elem()
		x.copy(k, key)
		x.copy(v, from.MapIndex(key))
		to.SetMapIndex(k, v)
	}
}

func (x *expansion) text(s string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "<<")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, closed := strings.Cut(rest, ">>")
		value, err := x.look(name)
		if !closed {
			err = fmt.Errorf("<<%.40s has no >>", rest)
		}
		if err != nil && x.err == nil {
			x.err = err
		}
		out.WriteString(value)
		s = after
	}
}

// choices returns the variables of each run of a step or scene: those of base
// with what each element of each says.
func choices(base map[string]string, each []any) []map[string]string {
	if len(each) == 0 {
		return []map[string]string{base}
	}
	var out []map[string]string
	for _, e := range each {
		vars := maps.Clone(base)
		if vars == nil {
			vars = map[string]string{}
		}
		if named, ok := e.(map[string]any); ok {
			for key, value := range named {
				vars[key] = fmt.Sprint(value)
			}
		} else {
			vars["each"] = fmt.Sprint(e)
		}
		out = append(out, vars)
	}
	return out
}
