// Package strictyaml decodes one YAML document into a Go value and refuses
// whatever could mean something else than its author thinks. It reports all
// problems at once, each with its path and line, and never repeats a value.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Options say how to read a document. The zero value is strict, bounded by
// the defaults and expands nothing.
type Options struct {
	File string // the name that problems show

	// LookupEnv switches expansion on: ${NAME} in a scalar becomes what it
	// returns, ${file:PATH} the text of a file, $${ a plain ${. Nil leaves
	// every scalar as it is written.
	LookupEnv func(name string) (string, bool)
	// ReadFile reads the file of ${file:PATH}. Nil means the file system,
	// with a PATH that is not absolute taken from Dir.
	ReadFile func(path string) ([]byte, error)
	Dir      string

	MaxBytes int // 0 means 4 MiB
	MaxDepth int // 0 means 32 levels of lists and mappings
}

// Decode reads the one document of data into the struct, map or slice that
// into points to, and leaves what the document does not mention as it is, so
// that defaults are set beforehand. Where there is a problem the content of
// into is not defined. The problems are sorted by line. It never panics on any
// data.
//
// Struct fields are filled by their tag, `yaml:"name"`; a struct tagged
// `yaml:",inline"` lends its keys to the one around it; fields without a tag
// are left alone. The kinds of fields are structs, maps with string keys,
// slices, pointers, strings, booleans, integers, floats, time.Duration, any,
// and whatever implements encoding.TextUnmarshaler. Only any may be null. Under
// any an integer is an int64 and a fraction a float64.
func Decode(data []byte, into any, opts Options) (*Positions, []Problem) {
	d := &decoder{
		opts:   opts.withDefaults(),
		pos:    &Positions{file: opts.File, lines: map[string]int{}},
		fields: map[reflect.Type][]field{},
	}
	if root := d.parse(data); root != nil {
		d.value(root, "", 0, reflect.ValueOf(into).Elem())
	}
	Sort(d.problems)
	return d.pos, slices.Compact(d.problems)
}

func (o Options) withDefaults() Options {
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 20
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = 32
	}
	if o.ReadFile == nil {
		dir := o.Dir
		o.ReadFile = func(path string) ([]byte, error) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			return readBounded(path)
		}
	}
	return o
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
}

type decoder struct {
	opts     Options
	pos      *Positions
	problems []Problem
	fields   map[reflect.Type][]field
}

func (d *decoder) problem(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{
		File: d.opts.File, Path: path, Line: line, Message: fmt.Sprintf(format, args...),
	})
}

// parse returns the root of the only document, or nil after a problem.
func (d *decoder) parse(data []byte) *yaml.Node {
	switch {
	case len(data) > d.opts.MaxBytes:
		d.problem(0, "", "is larger than %s", ByteSize(d.opts.MaxBytes))
		return nil
	case !utf8.Valid(data):
		d.problem(1+bytes.Count(data[:invalidUTF8(data)], []byte("\n")), "", "is not UTF-8 text")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	doc, err := decodeNode(dec)
	switch {
	case errors.Is(err, io.EOF):
		d.problem(1, "", "is empty; write {} where nothing is meant to be set")
		return nil
	case err != nil:
		d.syntax(data, err)
		return nil
	}
	next, err := decodeNode(dec)
	switch {
	case err == nil:
		d.problem(next.Line, "", "a second document begins here; only one is allowed")
		return nil
	case !errors.Is(err, io.EOF):
		d.syntax(data, err)
		return nil
	}
	return doc.Content[0]
}

// decodeNode turns a panic of the parser, which meets bytes that nobody has
// vetted, into an error.
func decodeNode(dec *yaml.Decoder) (node *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("yaml: cannot be parsed")
		}
	}()
	node = &yaml.Node{}
	if err := dec.Decode(node); err != nil {
		return nil, err
	}
	return node, nil
}

func invalidUTF8(data []byte) int {
	at := 0
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

var (
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	syntaxLine    = regexp.MustCompile(`^line (\d+): (.*)$`)
	// zeroBased are the errors whose line the library counts from 0.
	zeroBased = regexp.MustCompile(`^did not find expected (key|node content|'-' indicator|',' or '[\]}]'|<document start>)$`)
)

// syntax reports an error of the parser, whose text is all it gives.
func (d *decoder) syntax(data []byte, err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+m[1]))
		d.problem(1+bytes.Count(before, []byte("\n")), "", "aliases are not allowed; write the value out")
		return
	}
	line := 1
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
		if zeroBased.MatchString(text) {
			line++
		}
	}
	d.problem(line, "", "is not valid YAML, here or in what begins here: %s", text)
}
