package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/regogate/regogate/registry/strictyaml"
)

// sealer makes what Redis gets to see: names that tell neither a session's id
// nor its principal, and values that open only as the facts of the session
// that they were sealed for. It is safe for concurrent use.
type sealer struct {
	base  string // what every key begins with, a session's is followed by its member
	names []byte
	seals []byte
}

// newSealer derives the keys. The version is in everything, so that a release
// with values of another meaning never reads these. The braces keep all in one
// slot of a cluster, where a script can hold them to their limits.
func newSealer(key strictyaml.Secret, prefix string) (*sealer, error) {
	secret, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("read the key of sessions: %w", err)
	}
	s := &sealer{base: prefix + ":sessions:v1:{s}:"}
	for info, to := range map[string]*[]byte{"names": &s.names, "seals": &s.seals} {
		if *to, err = hkdf.Key(sha256.New, secret, nil, "regogate sessions v1 "+info, sha256.Size); err != nil {
			return nil, fmt.Errorf("derive the keys of sessions: %w", err)
		}
	}
	return s, nil
}

// name is where a session is.
type name struct {
	member string // in the sets
	key    string
	mine   string // key of the set of the principal's sessions
	all    string // key of the set of all sessions
}

// name hides id and principal behind a key: principals are few and guessable,
// so a bare hash would tell them. An id with another principal is another
// name, where there is nothing.
func (s *sealer) name(id, principal string) name {
	member := s.hide("session", string(bound(id, principal)))
	return name{
		member: member, key: s.base + member,
		mine: s.base + "of:" + s.hide("principal", principal), all: s.base + "all",
	}
}

func (s *sealer) hide(kind, what string) string {
	mac := hmac.New(sha256.New, s.names)
	mac.Write(bound(kind, what))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// seal returns the sealed facts of the session that id and principal name.
func (s *sealer) seal(plain []byte, id, principal string) ([]byte, error) {
	aead, err := s.aead(id)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, plain, bound(id, principal)), nil
}

// open is the inverse of seal. The error says that the value was not sealed
// with this key, or not for this session.
func (s *sealer) open(sealed []byte, id, principal string) ([]byte, error) {
	aead, err := s.aead(id)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, nil, sealed, bound(id, principal))
}

// aead has a key for each session: with random nonces, one for all would be
// used up one day.
func (s *sealer) aead(id string) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, s.seals, id, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// overhead is what sealing adds: a nonce and a tag.
const overhead = 12 + 16

// bound joins two texts so that no others give the same bytes.
func bound(a, b string) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(len(a)))
	return append(append(out, a...), b...)
}
