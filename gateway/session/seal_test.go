package session

import (
	"encoding/base64"
	"fmt"
	"testing"
)

// The form of what is in Redis. If this has to change, so has the version:
// replicas of two releases share it during a rollout.
func TestFormOfWhatRedisHas(t *testing.T) {
	s, err := newSealer(testKey, "p")
	if err != nil {
		t.Fatal(err)
	}
	want := name{
		member: "91342634452180a78df64c9fe33f31b9",
		key:    "p:sessions:v1:{s}:91342634452180a78df64c9fe33f31b9",
		mine:   "p:sessions:v1:{s}:of:25b41ae4705f669095787b3bb31fd9fc",
		all:    "p:sessions:v1:{s}:all",
	}
	if got := s.name("id", "principal"); got != want {
		t.Errorf("name %+v", got)
	}
	const value = "aiM+vHgBY3A+4CQJdXq71KViBaG/K+A25JmZ0AFqUUGd58qst5gkxqC9xyjRNVkxyj53s7FXFCDPHsXklpi6sCWR3btHjyg7ATCJT4//ve4PExVb5g=="
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := s.open(raw, "id", "principal"); err != nil || string(plain) != `{"version":"2025-11-25","created":"2026-01-02T03:04:05Z"}` {
		t.Errorf("opened %q, %v", plain, err)
	}
}

func TestNamesDiffer(t *testing.T) {
	s, err := newSealer(testKey, "p")
	if err != nil {
		t.Fatal(err)
	}
	keys, mine := map[string]string{}, map[string]string{}
	for _, in := range [][2]string{{"a", "b"}, {"ab", ""}, {"", "ab"}, {"b", "a"}, {"a", "c"}, {"a\x00b", "c"}, {"a", "\x00bc"}} {
		n, what := s.name(in[0], in[1]), fmt.Sprintf("%q", in)
		if other, taken := keys[n.key]; taken {
			t.Errorf("%s and %s are both %s", what, other, n.key)
		}
		keys[n.key] = what
		if other, taken := mine[n.mine]; taken && other != in[1] {
			t.Errorf("principals %q and %q are both %s", in[1], other, n.mine)
		}
		mine[n.mine] = in[1]
	}
	if again := s.name("a", "b"); keys[again.key] != `["a" "b"]` {
		t.Errorf("the name of a session changed")
	}
}

func TestSealsDiffer(t *testing.T) {
	s, err := newSealer(testKey, "p")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 100 {
		value, err := s.seal([]byte("same"), "id", "principal")
		if err != nil {
			t.Fatal(err)
		}
		if seen[string(value)] || len(value) != len("same")+overhead {
			t.Fatalf("sealed %x", value)
		}
		seen[string(value)] = true
	}
}
