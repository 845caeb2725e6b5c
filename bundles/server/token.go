package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strings"
	"sync"
)

// Token is a secret in a file, which is read for each request, so that it can be
// renewed. It is safe for concurrent use.
type Token struct {
	path string
	mu   sync.Mutex
	sum  [sha256.Size]byte // of the last that could be read
}

// maxToken is far above what tokens need, in bytes.
const maxToken = 64 << 10

// OpenToken fails for a file that holds none.
func OpenToken(path string) (*Token, error) {
	t := &Token{path: path}
	var err error
	t.sum, err = t.read()
	return t, err
}

func (t *Token) read() (sum [sha256.Size]byte, err error) {
	text, err := readFile(t.path, maxToken)
	if err != nil {
		return sum, err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return sum, fmt.Errorf("%s: holds no token", t.path)
	}
	return sha256.Sum256([]byte(token)), nil
}

// matches reports whether the header carries the token. While the file cannot be
// read, the last one counts.
func (t *Token) matches(header string) bool {
	sum, err := t.read()
	t.mu.Lock()
	if err == nil {
		t.sum = sum
	}
	sum = t.sum
	t.mu.Unlock()
	scheme, given, _ := strings.Cut(header, " ")
	got := sha256.Sum256([]byte(given))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], sum[:]) == 1
}
