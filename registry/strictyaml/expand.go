package strictyaml

import (
	"errors"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSecretBytes bounds the file of ${file:PATH}.
const maxSecretBytes = 1 << 20

// expand fills in the variables of a scalar in one pass, so that what a
// variable holds is never looked into again.
func (d *decoder) expand(n *yaml.Node, path string) (string, bool) {
	var out strings.Builder
	rest, good := n.Value, true
	for {
		at := strings.Index(rest, "${")
		if at < 0 {
			out.WriteString(rest)
			return out.String(), good
		}
		if at > 0 && rest[at-1] == '$' {
			out.WriteString(rest[:at-1] + "${")
			rest = rest[at+2:]
			continue
		}
		out.WriteString(rest[:at])
		name, after, closed := strings.Cut(rest[at+2:], "}")
		if !closed {
			d.problem(n.Line, path, "a variable begins with ${ and has no }; write $${ for a plain ${")
			return "", false
		}
		text, ok := d.variable(n, path, name)
		out.WriteString(text)
		rest, good = after, good && ok
	}
}

func (d *decoder) variable(n *yaml.Node, path, name string) (string, bool) {
	if file, ok := strings.CutPrefix(name, "file:"); ok {
		return d.secretFile(n, path, file)
	}
	if !variableName(name) {
		d.problem(n.Line, path, "want ${NAME} or ${file:PATH}, where NAME is letters, digits and _; write $${ for a plain ${")
		return "", false
	}
	value, set := d.opts.LookupEnv(name)
	switch {
	case !set:
		d.problem(n.Line, path, "the environment variable %s is not set", clip(name))
	case value == "":
		d.problem(n.Line, path, "the environment variable %s is empty", clip(name))
	default:
		return value, true
	}
	return "", false
}

func (d *decoder) secretFile(n *yaml.Node, path, file string) (string, bool) {
	if file == "" {
		d.problem(n.Line, path, "${file:PATH} needs a path")
		return "", false
	}
	data, err := d.opts.ReadFile(file)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		d.problem(n.Line, path, "cannot read the file %s: %v", clip(file), err)
		return "", false
	}
	text, windows := strings.CutSuffix(string(data), "\r\n")
	if !windows {
		text = strings.TrimSuffix(text, "\n")
	}
	switch {
	case text == "":
		d.problem(n.Line, path, "the file %s is empty", clip(file))
	case len(data) > maxSecretBytes:
		d.problem(n.Line, path, "the file %s is larger than %s", clip(file), ByteSize(maxSecretBytes))
	default:
		return text, true
	}
	return "", false
}

func variableName(s string) bool {
	for i, c := range []byte(s) {
		if !letter(c) && (i == 0 || !digit(c)) {
			return false
		}
	}
	return s != ""
}

func letter(c byte) bool { return c == '_' || (c|0x20 >= 'a' && c|0x20 <= 'z') }
func digit(c byte) bool  { return c >= '0' && c <= '9' }
