package upstream

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

// Match reports whether uri can be what comes of a resource template with some
// values in it. It errs on the side of yes: names of query parameters and
// lengths of prefixes are not compared. It is false for whatever is no
// template, and for a URI longer than a server can list.
func (d *Definition) Match(uri string) bool {
	if d.pattern == nil || len(uri) > longestURI {
		return false
	}
	// What comes before the first variable is always there, and tells most apart.
	literal, _, _ := strings.Cut(d.Name, "{")
	return strings.HasPrefix(uri, literal) && d.pattern.MatchString(uri)
}

// compile turns a URI template into what its expansions look like. The error
// completes a sentence about the template, safely for a log.
func compile(template string) (*regexp.Regexp, error) {
	// What a pattern costs grows with its variables, and every read of a URI
	// that is not listed may try all of them.
	const mostVariables = 16
	if len(template) > longestURI {
		return nil, fmt.Errorf("is longer than %d bytes", longestURI)
	}
	t, err := uritemplate.New(template)
	if err != nil {
		return nil, errors.New("is not a URI template")
	}
	if variables(template) > mostVariables {
		return nil, fmt.Errorf("has more than %d variables", mostVariables)
	}
	return t.Regexp(), nil
}

// variables counts how often a valid template names one.
func variables(template string) (n int) {
	inside := false
	for _, c := range []byte(template) {
		switch {
		case c == '{':
			inside = true
			n++
		case c == '}':
			inside = false
		case c == ',' && inside:
			n++
		}
	}
	return n
}
