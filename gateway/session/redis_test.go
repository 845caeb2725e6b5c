package session

import "testing"

func TestRedis(t *testing.T) {
	server := startRedis(t)
	testStore(t, func(t *testing.T, c Config) bench {
		f := newFleet(t, server.addr, c)
		store, ended, _ := f.replica()
		return bench{store, f.pass, ended}
	})
}
