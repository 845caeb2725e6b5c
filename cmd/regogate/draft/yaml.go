package draft

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// bareWord is what every YAML reader takes for a string without quotes, but
// for the words of tellsOther.
var bareWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// tellsOther are the words that some reader of YAML takes for a truth value or
// for nothing.
func tellsOther(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return true
	}
	return false
}

// yamlText writes a string as a YAML scalar of one line. References such as
// ${NAME} in it stay what they are.
func yamlText(s string) string {
	if bareWord.MatchString(s) && !tellsOther(s) {
		return s
	}
	return strconv.Quote(s)
}

// yamlList writes strings as a YAML list of one line.
func yamlList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = yamlText(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// plainDollar escapes what the configuration would take for a reference.
func plainDollar(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// comment makes any text fit for a comment: one line, nothing invisible, and
// not without end.
func comment(s string) string {
	const most = 400
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
