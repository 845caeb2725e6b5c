package session

import "testing"

func TestMemory(t *testing.T) {
	testStore(t, func(t *testing.T, c Config) bench {
		at, ended := newClock(), &ends{}
		return bench{NewMemory(c, at.now, ended.add), at.add, ended}
	})
}
