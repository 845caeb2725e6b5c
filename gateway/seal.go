package gateway

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// seals gives clients texts to bring back that nobody but the gateway can read
// or make: cursors, the ids of tasks and the state of requests that go on. Each
// is of one purpose and bound to what it was given for; replicas that share a
// key take each other's.
type seals struct{ of map[string]seal }

// The purposes.
const (
	sealCursor = "cursor"
	sealTask   = "task"
	sealState  = "request state"
)

// seal is what one purpose is sealed with.
type seal struct {
	aead  cipher.AEAD
	nonce []byte // key of the HMAC that nonces come from
}

var (
	// errCursor is every way in which a cursor is no good: not ours, someone
	// else's, of another route, or of a list that has changed since.
	errCursor = errors.New("the cursor is not valid for this list any more: start again without one")
	errSeal   = errors.New("not sealed by this gateway for this use")
)

// newSeals makes a key of its own where it is given none.
func newSeals(key []byte) *seals {
	if len(key) == 0 {
		key = make([]byte, 32)
		rand.Read(key) // never fails: crypto/rand ends the process instead
	}
	s := &seals{of: map[string]seal{}}
	for _, purpose := range []string{sealCursor, sealTask, sealState} {
		s.of[purpose] = newSeal(key, purpose)
	}
	return s
}

func newSeal(key []byte, purpose string) seal {
	derive := func(info string) []byte {
		derived, err := hkdf.Key(sha256.New, key, nil, "regogate "+info, 32)
		if err != nil {
			panic(err) // 32 bytes are never too many
		}
		return derived
	}
	block, err := aes.NewCipher(derive(purpose))
	if err != nil {
		panic(err) // and never the wrong number
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return seal{aead, derive("nonce of " + purpose)}
}

// seal encrypts a text for a purpose, bound to parts. The same text for the same
// purpose and parts gives the same result, at every replica with the key, so
// that an id stays one; hence the nonce is made of all of them.
func (s *seals) seal(purpose string, text []byte, parts ...string) string {
	with, about := s.of[purpose], bound(parts)
	mac := hmac.New(sha256.New, with.nonce)
	mac.Write(bound([]string{string(about), string(text)}))
	nonce := mac.Sum(nil)[:with.aead.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(with.aead.Seal(nonce, nonce, text, about))
}

// open returns the text that seal was given with the same purpose and parts, or
// errSeal.
func (s *seals) open(purpose, sealed string, parts ...string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	aead := s.of[purpose].aead
	if err != nil || len(b) < aead.NonceSize() {
		return nil, errSeal
	}
	text, err := aead.Open(nil, b[:aead.NonceSize()], b[aead.NonceSize():], bound(parts))
	if err != nil {
		return nil, errSeal
	}
	return text, nil
}

// sealFor is seal with an end: openFor takes it for no longer than d.
func (s *seals) sealFor(d time.Duration, purpose string, text []byte, parts ...string) string {
	end := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(d).Unix()))
	return s.seal(purpose, append(end, text...), parts...)
}

func (s *seals) openFor(purpose, sealed string, parts ...string) ([]byte, error) {
	text, err := s.open(purpose, sealed, parts...)
	if err != nil || len(text) < 8 || time.Now().Unix() > int64(binary.BigEndian.Uint64(text)) {
		return nil, errSeal
	}
	return text[8:], nil
}

// cursor is the place at offset in the list that the parts name.
func (s *seals) cursor(offset int, parts ...string) string {
	return s.seal(sealCursor, binary.BigEndian.AppendUint32(nil, uint32(offset)), parts...)
}

func (s *seals) openCursor(cursor string, parts ...string) (int, error) {
	text, err := s.open(sealCursor, cursor, parts...)
	if err != nil || len(text) != 4 {
		return 0, errCursor
	}
	return int(binary.BigEndian.Uint32(text)), nil
}

// bound writes the parts so that no two lists of them read the same.
func bound(parts []string) []byte {
	var out []byte
	for _, p := range parts {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	return out
}
