package diff

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/registry"
)

// Bounds of what is printed.
const (
	mostChanges = 500
	mostFields  = 200
	mostHunks   = 40
	mostBytes   = 1000 // of one value
	mostAround  = 60   // of what stands before a change in a text
	longText    = 120  // bytes of two texts together from which on they are compared by words
)

// Print writes the changes for people: a line for each, beginning with indent, and
// below it those of its fields as PrintFields writes them. Of very many it says how
// many more there are.
func Print(w io.Writer, indent string, changes []Change) {
	var b bytes.Buffer
	for _, c := range changes[:min(len(changes), mostChanges)] {
		fmt.Fprintln(&b, strings.TrimRight(indent+c.How+" "+c.What+" "+registry.Name(c.Server, c.Tool), " "))
		if c.How == Changed {
			PrintFields(&b, indent+"  ", c.Fields)
			continue
		}
		for _, f := range c.Fields {
			fmt.Fprintf(&b, "%s  %s: %s\n", indent, f.Path, shown(string(f.Old)+string(f.New), mostBytes))
		}
	}
	if more := len(changes) - mostChanges; more > 0 {
		fmt.Fprintf(&b, "%sand %d more\n", indent, more)
	}
	_, _ = w.Write(b.Bytes())
}

// PrintFields writes the fields for people, each line beginning with indent. Values
// are JSON, with what does not show escaped, as Plain does it; long ones are
// cut, saying how much is left out, and of two long texts only the words that
// differ are written, each passage below what stands before it.
func PrintFields(w io.Writer, indent string, fields []Field) {
	var b bytes.Buffer
	for _, f := range fields[:min(len(fields), mostFields)] {
		path := f.Path
		if path == "" {
			path = "all of it"
		}
		b.WriteString(indent + path + ": ")
		switch {
		case f.Old == nil:
			b.WriteString("added " + shown(string(f.New), mostBytes))
		case f.New == nil:
			b.WriteString("removed " + shown(string(f.Old), mostBytes))
		case prose(f.Old, f.New):
			printHunks(&b, indent, hunks(unquoted(f.Old), unquoted(f.New)))
			continue
		default:
			b.WriteString(shown(string(f.Old), mostBytes) + " -> " + shown(string(f.New), mostBytes))
		}
		b.WriteByte('\n')
	}
	if more := len(fields) - mostFields; more > 0 {
		fmt.Fprintf(&b, "%sand %d more\n", indent, more)
	}
	_, _ = w.Write(b.Bytes())
}

// prose reports whether two values are texts that are better compared by words.
func prose(old, new jsontext.Value) bool {
	return old.Kind() == '"' && new.Kind() == '"' && len(old)+len(new) > longText && strings.Contains(string(old)+string(new), " ")
}

func unquoted(v jsontext.Value) string {
	s, _ := jsontext.AppendUnquote(nil, v) // it is a JSON string
	return string(s)
}

func printHunks(b *bytes.Buffer, indent string, list []hunk) {
	fmt.Fprintf(b, "the text differs in %d place", len(list))
	if len(list) > 1 {
		b.WriteByte('s')
	}
	b.WriteByte('\n')
	for _, h := range list[:min(len(list), mostHunks)] {
		before := "at its beginning"
		if h.before != "" {
			before = "after " + quoted(h.before)
		}
		fmt.Fprintf(b, "%s  %s\n", indent, before)
		for _, side := range []struct{ sign, text string }{{"-", h.old}, {"+", h.new}} {
			if side.text != "" {
				fmt.Fprintf(b, "%s    %s %s\n", indent, side.sign, quoted(side.text))
			}
		}
	}
	if more := len(list) - mostHunks; more > 0 {
		fmt.Fprintf(b, "%s  and in %d more\n", indent, more)
	}
}

func quoted(s string) string { return shown(string(text(s)), mostBytes) }

// shown is a JSON text of one line for people, cut after most bytes.
func shown(json string, most int) string {
	if len(json) <= most {
		return Plain(json)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(json[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d more bytes)", Plain(json[:cut]), len(json)-cut)
}

// Plain returns a JSON text with every character in it escaped that does not show,
// or shows as if it were another: control, bidirectional, tag and other invisible
// characters, blanks other than the space, variation selectors, and letters of
// other alphabets in a word with Latin ones. It is the same JSON.
func Plain(json string) string {
	var b strings.Builder
	word, latin, other := 0, false, false // where the word begins, and what it holds
	flush := func(end int) {
		for _, r := range json[word:end] {
			if hidden(r) || latin && other && foreign(r) {
				b.WriteString(escaped(r))
			} else {
				b.WriteRune(r)
			}
		}
		word, latin, other = end, false, false
	}
	for i, r := range json {
		switch {
		case foreign(r):
			other = true
		case unicode.IsLetter(r) && unicode.Is(unicode.Latin, r):
			latin = true
		case !unicode.IsLetter(r) && !unicode.IsMark(r) && !hidden(r):
			flush(i)
		}
	}
	flush(len(json))
	return b.String()
}

// hidden finds what does not show, or not as what it is.
func hidden(r rune) bool {
	const lastShown, blankBraille = '~', 0x2800
	return r > lastShown && (!unicode.IsPrint(r) || r == blankBraille ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point))
}

// foreign finds letters of the alphabets that have ones which look like Latin ones.
func foreign(r rune) bool {
	return r >= utf8.RuneSelf && unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu)
}

// escaped is a character as JSON has it, in UTF-16.
func escaped(r rune) string {
	const surrogates = 0x10000
	if r < surrogates {
		return fmt.Sprintf(`\u%04x`, r)
	}
	r -= surrogates
	return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
}
