package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// errCursor is every way in which a cursor is no good: not ours, someone
// else's, of another route, or of lists that have changed since.
var errCursor = errors.New("the cursor is not valid for this list any more: start again without one")

// cursors seals the place in a list to everything the list depends on, so that
// a page never continues a list that another principal, policy or registry
// gave.
type cursors struct{ key [32]byte }

func newCursors() *cursors {
	c := &cursors{}
	rand.Read(c.key[:]) // never fails: crypto/rand ends the process instead
	return c
}

// seal makes the opaque cursor of the item at offset in the list that the
// parts name.
func (c *cursors) seal(offset int, parts ...string) string {
	out := binary.BigEndian.AppendUint32(nil, uint32(offset))
	return base64.RawURLEncoding.EncodeToString(append(out, c.tag(out, parts)...))
}

// open returns the offset of a cursor that seal made of the same parts.
func (c *cursors) open(cursor string, parts ...string) (int, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != 4+16 || !hmac.Equal(b[4:], c.tag(b[:4], parts)) {
		return 0, errCursor
	}
	return int(binary.BigEndian.Uint32(b)), nil
}

func (c *cursors) tag(offset []byte, parts []string) []byte {
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write(offset)
	for _, p := range parts {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		mac.Write([]byte(p))
	}
	return mac.Sum(nil)[:16]
}
