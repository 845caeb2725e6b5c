package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong in a file, and how to mend it. The zero
// Line and the empty File and Path mean that they are not known.
type Problem struct {
	File    string
	Path    string // such as issuers[0].audience
	Line    int    // counted from 1
	Message string // never holds a scalar's value
}

// String is "file:line: path: message" without the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		b.WriteString(strconv.Itoa(p.Line) + ":")
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	return b.String() + p.Message
}

// Err returns the problems as one error with a line for each, or nil where
// there is none.
func Err(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return errors.New(strings.Join(lines, "\n"))
}

// Sort orders problems by file, line, path and message.
func Sort(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
}

// Positions knows on which line of a file each path stands, so that a check
// that runs after Decode can say so too. A nil *Positions knows nothing. It is
// read-only, hence safe for concurrent use.
type Positions struct {
	file  string
	lines map[string]int
}

// Line returns the line of the path, or of the nearest thing around it where
// the path itself is not in the file, or 0.
func (p *Positions) Line(path string) int {
	if p == nil {
		return 0
	}
	for {
		if line, ok := p.lines[path]; ok {
			return line
		}
		if path == "" {
			return 0
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// Locate fills in the file and the line of problems that have only a path, and
// sorts them.
func (p *Positions) Locate(problems []Problem) {
	if p == nil {
		return
	}
	for i := range problems {
		if problems[i].File == "" && problems[i].Line == 0 {
			problems[i].File, problems[i].Line = p.file, p.Line(problems[i].Path)
		}
	}
	Sort(problems)
}

// Field returns the path of a mapping's value. A key that would make the path
// ambiguous is quoted: servers["a.b"].
func Field(path, key string) string {
	if !plainKey(key) {
		return path + "[" + strconv.Quote(clip(key)) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Index returns the path of a list's element.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func plainKey(key string) bool {
	for _, c := range []byte(key) {
		if !letter(c) && !digit(c) && c != '-' {
			return false
		}
	}
	return key != "" && len(key) <= maxShown
}

// maxShown bounds what a message repeats of a file.
const maxShown = 80

func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// Nearest returns the known word that the given one was probably meant to be,
// or "" where none is close.
func Nearest(word string, known []string) string {
	if len(word) > maxShown {
		return ""
	}
	best, least := "", min(max(len(word)/3, 1), 2)+1
	for _, k := range known {
		if strings.EqualFold(k, word) {
			return k
		}
		if d := distance(word, k); d < least && d < len(word) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that lead from a to b.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
