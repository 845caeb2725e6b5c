package decisionlog

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/util"
)

// rule is one element of a mask: what OPA's plugin does for it is what is done
// here.
type rule struct {
	upsert bool
	value  any // of an upsert
	// path is the segments below input or result, escaped as a URL's are: that is
	// how OPA compares them with keys, too.
	document string
	path     []string
}

// rules is a mask, in its order.
type rules []rule

// Documents that a mask can reach. OPA's third, nd_builtin_cache, is in no event.
const (
	inInput  = "input"
	inResult = "result"
	inCache  = "nd_builtin_cache"
)

// readRules reads a mask: an array of pointers, which remove, and of objects with
// op, path and value. Of a mask with a malformed element nothing can be used. The
// error says which element, and nothing of what is in it.
func readRules(answer any) (rules, error) {
	all, ok := answer.([]any)
	if !ok {
		return nil, errors.New("the mask must be a set or an array of paths and objects")
	}
	out := make(rules, 0, len(all))
	for i, element := range all {
		r, err := readRule(element)
		if err != nil {
			return nil, fmt.Errorf("element %d of the mask: %w", i, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func readRule(element any) (r rule, err error) {
	path, ok := element.(string)
	if !ok {
		o, ok := element.(map[string]any)
		if !ok {
			return r, errors.New("must be a path or an object")
		}
		switch o["op"] {
		case "remove":
		case "upsert":
			r.upsert, r.value = true, o["value"]
		default:
			return r, errors.New(`op must be "remove" or "upsert"`)
		}
		path, _ = o["path"].(string)
	}
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return r, errors.New("path must begin with a slash, such as /input/arguments/password")
	}
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		if _, err := url.PathUnescape(part); err != nil {
			return r, errors.New("path holds a % that escapes nothing")
		}
		parts[i] = url.PathEscape(part)
	}
	r.document, r.path = parts[0], parts[1:]
	if r.document != inInput && r.document != inResult && r.document != inCache {
		return r, errors.New("path must begin with /input or /result")
	}
	return r, nil
}

func (r *rule) String() string {
	return "/" + strings.Join(append([]string{r.document}, r.path...), "/")
}

// apply masks the event, whose input is a copy that nobody else has. Rules about
// what is not there do nothing.
func (all rules) apply(v *event, input any) error {
	documents := map[string]*any{inInput: &input}
	if all.reach(inResult) {
		result, err := decoded(v.result)
		if err != nil {
			return err
		}
		documents[inResult] = &result
	}
	for i := range all {
		r := &all[i]
		at := documents[r.document]
		if at == nil {
			continue
		}
		switch {
		case !r.upsert && len(r.path) == 0:
			delete(documents, r.document)
			v.erased = append(v.erased, r.String())
		case !r.upsert && remove(at, r.path):
			v.erased = append(v.erased, r.String())
		case r.upsert && len(r.path) == 0:
			*at = r.value
			v.masked = append(v.masked, r.String())
		case r.upsert && put(*at, r.path, r.value):
			v.masked = append(v.masked, r.String())
		}
	}
	v.input = nil
	if in := documents[inInput]; in != nil {
		v.input, v.shortened = appendJSON(nil, *in)
	}
	if result := documents[inResult]; result != nil {
		v.result, _ = appendJSON(nil, *result)
	} else if all.reach(inResult) {
		v.result = nil
	}
	return nil
}

func (all rules) reach(document string) bool {
	return slices.ContainsFunc(all, func(r rule) bool { return r.document == document })
}

// decoded reads JSON with numbers exact.
func decoded(text []byte) (v any, err error) {
	if err := util.UnmarshalJSON(text, &v); err != nil {
		return nil, errors.New("the result is no JSON")
	}
	return v, nil
}

// remove takes out what is at the path, and reports whether there was anything.
func remove(at *any, path []string) bool {
	if len(path) == 1 {
		switch node := (*at).(type) {
		case map[string]any:
			_, ok := node[path[0]]
			delete(node, path[0])
			return ok
		case []any:
			i, ok := index(node, path[0])
			if ok {
				*at = slices.Delete(node, i, i+1)
			}
			return ok
		}
		return false
	}
	switch node := (*at).(type) {
	case map[string]any:
		child, ok := node[path[0]]
		if ok && remove(&child, path[1:]) {
			node[path[0]] = child // an array is another one then
			return true
		}
	case []any:
		if i, ok := index(node, path[0]); ok {
			return remove(&node[i], path[1:])
		}
	}
	return false
}

// put sets what is at the path, making the objects that it leads through, and
// reports whether the path leads anywhere.
func put(node any, path []string, value any) bool {
	for _, key := range path[:len(path)-1] {
		switch v := node.(type) {
		case map[string]any:
			if _, ok := v[key]; !ok {
				v[key] = map[string]any{}
			}
			node = v[key]
		case []any:
			i, ok := index(v, key)
			if !ok {
				return false
			}
			node = v[i]
		default:
			return false
		}
	}
	last := path[len(path)-1]
	switch v := node.(type) {
	case map[string]any:
		v[last] = value
		return true
	case []any:
		i, ok := index(v, last)
		if ok {
			v[i] = value
		}
		return ok
	}
	return false
}

func index(a []any, key string) (int, bool) {
	i, err := strconv.Atoi(key)
	return i, err == nil && i >= 0 && i < len(a)
}
