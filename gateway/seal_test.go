package gateway

import (
	"errors"
	"testing"
	"time"
)

// TestSealsEnd opens a state in time, too late, for another purpose and for
// other parts.
func TestSealsEnd(t *testing.T) {
	s := newSeals(nil)
	key := []byte("a key that two replicas share, long")
	shared := newSeals(key)
	sealed := s.sealFor(time.Minute, sealState, []byte("x"), "a", "bc")
	if text, err := s.openFor(sealState, sealed, "a", "bc"); err != nil || string(text) != "x" {
		t.Errorf("opened %q, %v", text, err)
	}
	if text, err := s.openFor(sealState, s.sealFor(-2*time.Second, sealState, []byte("x"), "a"), "a"); !errors.Is(err, errSeal) {
		t.Errorf("after its end: %q, %v", text, err)
	}
	if one := shared.seal(sealTask, []byte("x"), "a"); one != newSeals(key).seal(sealTask, []byte("x"), "a") || one == shared.seal(sealTask, []byte("y"), "a") {
		t.Error("an id is not one, or not one of its own")
	}
	for _, parts := range [][]string{{"ab", "c"}, {"a", "b", "c"}, {"abc"}, {"bc", "a"}, {"a"}, nil} {
		if text, err := s.openFor(sealState, sealed, parts...); !errors.Is(err, errSeal) {
			t.Errorf("bound to other parts than %q: %q, %v", parts, text, err)
		}
	}
	if text, err := s.openFor(sealTask, sealed, "a", "bc"); !errors.Is(err, errSeal) {
		t.Errorf("for another purpose: %q, %v", text, err)
	}
	if text, err := newSeals(nil).openFor(sealState, sealed, "a", "bc"); !errors.Is(err, errSeal) {
		t.Errorf("with another key: %q, %v", text, err)
	}
}
