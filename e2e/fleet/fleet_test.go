package fleet_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/e2e/replica"
	"github.com/regogate/regogate/gateway/auth/mint"
)

type object = map[string]any

const (
	sealKey  = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	otherKey = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY="
)

// fleet is the replicas, what they share and what is behind them.
type fleet struct {
	dir      string
	signer   *mint.Signer
	store    *redisserver.Server
	old      *ledger // of the legacy era, with sessions
	new      *ledger // of the modern era
	config   object
	replicas []*replica.Replica
}

// newFleet starts so many replicas. The test is skipped, or failed where
// REGOGATE_E2E is 1, without a redis-server.
func newFleet(t *testing.T, replicas int) *fleet {
	t.Helper()
	f := &fleet{dir: t.TempDir(), store: redisserver.Start(t, redisserver.Durable()...), old: newLedger("old"), new: newLedger("new")}
	var err error
	if f.signer, err = mint.Generate("ES256"); err != nil {
		t.Fatal(err)
	}
	keys, err := mint.KeySet(f.signer)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "keys.json", keys)
	f.write(t, "catalogue.yaml", []byte("version: 1\nservers: {}\n"))
	f.write(t, "policies/mcp/authz/authz.rego", []byte("package mcp.authz\n\ndefault allow := false\n\nallow if input.claims.sub\n"))
	servers := object{}
	for name, h := range map[string]http.HandlerFunc{"old": f.old.legacy, "new": f.new.modern} {
		s := httptest.NewServer(h)
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		servers[name] = object{"url": s.URL}
	}
	f.config = object{
		"listen": "127.0.0.1:0", "servers": servers, "page_size": 2,
		"auth": object{"issuers": []object{{
			"issuer": "fleet", "audience": []string{"fleet"}, "algorithms": []string{"ES256"}, "jwks_file": "keys.json",
		}}},
		"policy": object{"dir": "policies"}, "registry": object{"path": "catalogue.yaml"},
		"sessions": object{"redis": object{"url": "redis://" + f.store.Addr}, "key": sealKey},
		"log":      object{"level": "warn"},
	}
	for n := range replicas {
		f.replicas = append(f.replicas, f.start(t, fmt.Sprint("replica", n), f.config))
	}
	return f
}

func (f *fleet) write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (f *fleet) token(t *testing.T, principal string) string {
	t.Helper()
	now := time.Now()
	token, err := f.signer.Sign(map[string]any{
		"iss": "fleet", "aud": "fleet", "sub": principal, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (f *fleet) start(t *testing.T, name string, config object) *replica.Replica {
	t.Helper()
	return replica.Start(t, replica.Options{Dir: f.dir, Name: name, Config: config})
}
