package diff

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// hunk is one passage of a text that differs, in whole words.
type hunk struct {
	before   string // the end of what both texts have before it
	old, new string
}

// mostWords bounds the work. Longer texts are one passage, but for how they begin
// and end.
const mostWords = 5000

// hunks compares two texts by words.
func hunks(old, new string) (list []hunk) {
	a, b := words(old), words(new)
	begin := 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	before := ending(strings.Join(a[:begin], ""))
	a, b = a[begin:], b[begin:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if max(len(a), len(b)) > mostWords {
		return []hunk{{before, strings.Join(a, ""), strings.Join(b, "")}}
	}
	now := hunk{before: before}
	for _, d := range compare(a, b) {
		switch d.Type {
		case diffmatchpatch.DiffDelete:
			now.old += d.Text
		case diffmatchpatch.DiffInsert:
			now.new += d.Text
		case diffmatchpatch.DiffEqual:
			if now.old+now.new != "" {
				list = append(list, now)
			}
			now = hunk{before: ending(d.Text)}
		}
	}
	return append(list, now)
}

// compare has the library compare words: it compares runes, so each word is one.
func compare(a, b []string) []diffmatchpatch.Diff {
	known, table := map[string]rune{}, []string{""}
	letters := func(words []string) (list []rune) {
		for _, w := range words {
			if known[w] == 0 {
				known[w] = rune(len(table))
				table = append(table, w)
			}
			list = append(list, known[w])
		}
		return list
	}
	engine := &diffmatchpatch.DiffMatchPatch{} // without a time limit, for the same texts are to give the same
	diffs := engine.DiffMainRunes(letters(a), letters(b), false)
	for i := range diffs {
		var text strings.Builder
		for _, r := range diffs[i].Text {
			text.WriteString(table[r])
		}
		diffs[i].Text = text.String()
	}
	return diffs
}

// words splits a text into its words, each with the white space behind it.
func words(s string) (list []string) {
	from, space := 0, false
	for i, r := range s {
		if space && !unicode.IsSpace(r) {
			list = append(list, s[from:i])
			from = i
		}
		space = unicode.IsSpace(r)
	}
	if from < len(s) {
		list = append(list, s[from:])
	}
	return list
}

// ending is the end of a text, at the beginning of a word where that can be.
func ending(s string) string {
	if len(s) <= mostAround {
		return s
	}
	cut := len(s) - mostAround
	if space := strings.IndexByte(s[cut:], ' '); space >= 0 && space < mostAround-1 {
		cut += space + 1
	}
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut++
	}
	return "…" + s[cut:]
}
