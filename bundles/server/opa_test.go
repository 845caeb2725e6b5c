package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/logging"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/plugins/bundle"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
)

// opa has OPA's own plug-in download the bundle, and tells each status of it.
func opa(t *testing.T, config string) (*plugins.Manager, <-chan bundle.Status) {
	t.Helper()
	m, err := plugins.New([]byte(config), "test", inmem.New(), plugins.Logger(logging.NewNoOpLogger()))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := bundle.NewConfigBuilder().WithBytes(m.Config.Bundles).WithServices(m.Services()).
		WithKeyConfigs(m.PublicKeys()).Parse()
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan bundle.Status, 100)
	p := bundle.New(parsed, m)
	p.Register("test", func(s bundle.Status) { told <- s })
	m.Register(bundle.Name, p)
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Stop(context.Background()) })
	return m, told
}

// activated waits for another bundle to be in force, and returns its module.
func activated(t *testing.T, m *plugins.Manager, told <-chan bundle.Status, than string) string {
	t.Helper()
	end := time.After(30 * time.Second)
	for {
		select {
		case st := <-told:
			if st.Code != "" {
				t.Fatalf("%+v", st)
			}
			if st.ActiveRevision == "" || st.ActiveRevision == than {
				continue
			}
			text := ""
			err := storage.Txn(t.Context(), m.Store, storage.TransactionParams{}, func(txn storage.Transaction) error {
				ids, err := m.Store.ListPolicies(t.Context(), txn)
				for _, id := range ids {
					raw, _ := m.Store.GetPolicy(t.Context(), txn, id)
					text += string(raw)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return st.ActiveRevision + " " + text
		case <-end:
			t.Fatal("waited for a bundle in vain")
		}
	}
}

// OPA waits for what is saved, verifies it and has it in force; also where the
// server has let it wait in vain before.
func TestOPA(t *testing.T) {
	for name, wait := range map[string]int{"one long poll": 60, "several": 1} {
		t.Run(name, func(t *testing.T) {
			key := hmacKey(t)
			s := newStand(t, t.TempDir(), func(c *Config) {
				c.Sign = func() (*keys.Key, bundles.Claims, error) { return key, bundles.Claims{Scope: "prod"}, nil }
			})
			first := s.other("")
			m, told := opa(t, fmt.Sprintf(`{
				"services": {"s": {"url": %q}},
				"keys": {"prod": {"algorithm": "HS256", "key": %q, "scope": "prod"}},
				"bundles": {"authz": {"service": "s", "resource": "bundles/authz", "signing": {"keyid": "prod"},
					"polling": {"long_polling_timeout_seconds": %d, "min_delay_seconds": 3600, "max_delay_seconds": 3600}}}}`, s.URL, secret, wait))
			if got := activated(t, m, told, ""); got != first+" package mcp.authz\n\nallow := true\n" {
				t.Errorf("first %s", got)
			}
			s.until("OPA to wait", func(st Status) bool { return st.Waiting == 1 })
			if wait == 1 {
				// Each poll that was in vain is told: OPA asks again, and does not go by
				// the interval of an hour.
				for range 2 {
					<-told
				}
			}
			s.save("false")
			if got := activated(t, m, told, first); !strings.HasSuffix(got, "allow := false\n") {
				t.Errorf("then %s", got)
			}
			m.Stop(context.Background())
			s.until("OPA to go", func(st Status) bool { return st.Waiting == 0 })
		})
	}
}
