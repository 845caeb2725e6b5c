package cases

import (
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"github.com/regogate/regogate/registry/strictyaml"
)

// Load reads every *.yaml file at the root of fsys. The error has a line for
// everything that is wrong, no file at all among them.
func Load(fsys fs.FS) ([]*Case, error) {
	names, err := fs.Glob(fsys, "*.yaml")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no case found: there is no *.yaml file")
	}
	var all []*Case
	var problems []strictyaml.Problem
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		c := &Case{}
		pos, found := strictyaml.Decode(data, c, strictyaml.Options{File: name})
		if len(found) == 0 {
			found = c.validate(strings.TrimSuffix(name, ".yaml"))
			pos.Locate(found)
		}
		problems = append(problems, found...)
		all = append(all, c)
	}
	return all, strictyaml.Err(problems)
}

type validation struct{ problems []strictyaml.Problem }

func (v *validation) check(ok bool, path, message string) {
	if !ok {
		v.problems = append(v.problems, strictyaml.Problem{Path: path, Message: message})
	}
}

// validate finds what makes a case prove nothing.
func (c *Case) validate(id string) []strictyaml.Problem {
	v := &validation{}
	v.check(c.ID == id, "id", "must be the file's name")
	v.check(c.Title != "", "title", "is missing")
	v.check(c.Source != "", "source", "is missing: give the report's reference")
	v.check(c.Expectation != "", "expectation", "is missing: say in words what is right")
	steps, benign := len(c.Steps), c.Benign
	v.steps("steps", c.Steps)
	v.steps("benign", c.Benign)
	for i, s := range c.Scenes {
		at := strictyaml.Index("scenes", i)
		v.check(s.Name != "", at+".name", "is missing")
		v.steps(at+".steps", s.Steps)
		v.steps(at+".benign", s.Benign)
		steps += len(s.Steps)
		benign = append(benign, s.Benign...)
	}
	v.check(steps > 0, "steps", "there is none: say what is done")
	succeeds := false
	for _, s := range benign {
		succeeds = succeeds || s.Expect.succeeds()
	}
	v.check(succeeds, "benign", "no step that must succeed: give the closest legitimate request")
	return v.problems
}

func (v *validation) steps(path string, steps []Step) {
	for i, s := range steps {
		at := strictyaml.Index(path, i)
		kinds := 0
		for _, is := range []bool{s.Do != nil, s.Check != nil, s.Read != ""} {
			if is {
				kinds++
			}
		}
		v.check(kinds <= 1, at, "do, check and read exclude each other")
		empty := reflect.DeepEqual(s.Expect, Expect{})
		v.check(s.Do != nil || !empty, at+".expect", "is missing: a step without an expectation proves nothing")
		bodies := 0
		for _, is := range []bool{s.Body != nil, s.Call != "", s.List, s.Fill != nil, s.Raw != ""} {
			if is {
				bodies++
			}
		}
		v.check(bodies <= 1 && (kinds == 0 || bodies == 0), at, "body, call, list, fill and raw exclude each other")
	}
}

// succeeds reports whether something has to go well.
func (e *Expect) succeeds() bool {
	return e.OK || strings.HasPrefix(string(e.Status), "2") || e.Problems != nil && len(e.Problems) == 0
}
