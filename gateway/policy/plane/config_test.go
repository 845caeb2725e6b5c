package plane

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/server"
)

func TestCheckNamesEachProblemWithItsPath(t *testing.T) {
	private, public := pair(t)
	quote := func(s string) string { raw, _ := json.Marshal(s); return string(raw) }
	const shop = `"services": {"shop": {"url": "https://shop.example"}}`
	for config, want := range map[string]string{
		`{`:    "OPA's configuration must be one JSON object: unexpected EOF",
		`null`: "",
		`{` + shop + `, "bundles": {"authz": {}}}`:                                  "",
		`{"services": [{"name": "shop", "url": "http://h"}], "bundles": {"a": {}}}`: "",
		`{"services": [{"url": "http://h"}]}`:                                       "services.0.name: missing; name the service",
		`{"bundels": {}}`:                                                           "bundels: unknown setting; known here: bundles, decision_logs, discovery, keys, labels, persistence_directory, services, status",
		`{"bundle": {}, "plugins": {}, "server": {}}`:                               "bundle: is deprecated: name the bundle below bundles\nplugins: there are no plugins here: remove it\nserver: OPA serves nothing here: remove it",
		`{"default_decision": "a/b"}`:                                               "default_decision: decisions are asked of data.mcp alone: remove it",
		`{"caching": {}}`:                                                           "caching: decisions are cached by policy.cache: remove it",
		`{"storage": {}}`:                                                           "storage: policy is kept in memory: remove it",
		`{"nd_builtin_cache": true}`:                                                "nd_builtin_cache: has no meaning here: remove it",
		`{"distributed_tracing": {}}`:                                               "distributed_tracing: has no meaning here: remove it",
		`{"default_authorization_decision": "a"}`:                                   "default_authorization_decision: OPA serves nothing here: remove it",
		`{` + shop + `, "bundles": {"authz": {"persist": "yes", "polling": {"min_delay": 1}}}}`: "bundles.authz.persist: must be true or false\nbundles.authz.polling.min_delay: unknown setting; known here: long_polling_timeout_seconds, max_delay_seconds, min_delay_seconds",
		`{` + shop + `, "bundles": {"authz": {"service": "shopp"}}}`:                            `bundles.authz.service: "shopp" is not below services; known: shop`,
		`{"bundles": {"authz": {}}}`: "bundles.authz.service: missing, and there is none below services: add one and name it",
		`{"services": {"a": {"url": "http://a"}, "b": {"url": "http://b"}}, "bundles": {"authz": {}}}`:                                       "bundles.authz.service: missing; name one of a, b",
		`{` + shop + `, "bundles": {"authz": {"resource": "file:///etc/x"}}}`:                                                                "bundles.authz.resource: must be a path below the service's URL; for files on this machine use policy.dir",
		`{` + shop + `, "bundles": {"../up": {}}}`:                                                                                           "bundles.../up: the name may have letters, digits and _ . - and single slashes, and no part may begin with a dot",
		`{` + shop + `, "bundles": {"a": {}, "a/b": {}}}`:                                                                                    `bundles.a/b: the name begins with that of bundle "a": their files could not be told apart`,
		`{` + shop + `, "bundles": {"a": {"resource": "x"}, "b": {"resource": "/x"}}}`:                                                       `bundles.b.resource: is that of bundle "a" as well`,
		`{` + shop + `, "bundles": {"a": {"persist": true}}}`:                                                                                "persistence_directory: missing; bundles.a.persist needs a directory of its own",
		`{` + shop + `, "bundles": {"a": {"trigger": "manual"}}}`:                                                                            `bundles.a.trigger: "manual" is not taken here; use periodic`,
		`{` + shop + `, "bundles": {"a": {"polling": {"min_delay_seconds": 5, "max_delay_seconds": 1}}}}`:                                    "bundles.a.polling.max_delay_seconds: must not be less than min_delay_seconds",
		`{` + shop + `, "bundles": {"a": {"polling": {"min_delay_seconds": 0, "max_delay_seconds": 1}}}}`:                                    "bundles.a.polling.min_delay_seconds: must be from 1 second to a year",
		`{` + shop + `, "bundles": {"a": {"polling": {"min_delay_seconds": 5}}}}`:                                                            "bundles.a.polling: min_delay_seconds and max_delay_seconds go together: give both",
		`{` + shop + `, "bundles": {"a": {"size_limit_bytes": 0}}}`:                                                                          "bundles.a.size_limit_bytes: must be 1 or more",
		`{` + shop + `, "bundles": {"a": {"signing": {"keyid": "k"}}}}`:                                                                      "bundles.a.signing: there is no public key below keys to verify with: add it",
		`{` + shop + `, "keys": {"k": {"key": ` + quote(public) + `, "algorithm": "ES256"}}, "bundles": {"a": {"signing": {"keyid": "j"}}}}`: `bundles.a.signing.keyid: "j" is no public key below keys`,
		`{` + shop + `, "keys": {"k": {"key": ` + quote(public) + `}}, "bundles": {"a": {"signing": {"exclude_files": ["*"]}}}}`:             "bundles.a.signing.exclude_files: would let unsigned files in: remove it and sign every file",
		`{"keys": {"k": {"key": ` + quote(private) + `, "algorithm": "ES256"}}}`:                                                             "keys.k.key: holds a EC PRIVATE KEY: give the public key",
		`{"keys": {"k": {"key": "secret"}}}`:                                                                                                 "keys.k.key: is no PEM: give the public key itself, from -----BEGIN PUBLIC KEY----- on",
		`{"keys": {"k": {"key": "s", "algorithm": "none"}}}`:                                                                                 `keys.k.algorithm: "none" is not known; use RS256, ES256, PS256 or HS256 or their longer kin`,
		`{"keys": {"k": {"private_key": "s", "algorithm": "HS256"}}}`:                                                                        "keys.k.key: missing; a key of HS256 needs its secret there",
		`{"services": {"a": {"url": "http://u:p@h"}}}`:                                                                                       "services.a.url: holds a user: put it below credentials",
		`{"services": {"a": {}}}`:                                                               "services.a.url: missing; give the service's base URL",
		`{"services": {"a": {"url": "http://h", "type": "oci"}}}`:                               "services.a.type: only plain HTTP services are taken, no OCI registries: remove it and serve the bundle over HTTPS",
		`{"services": {"a": {"url": "http://h", "credentials": {"bearer": {"tokn": "x"}}}}}`:    "services.a.credentials.bearer.tokn: unknown setting; known here: scheme, token, token_path",
		`{"services": {"a": {"url": "http://h", "credentials": {"plugin": "x"}}}}`:              "services.a.credentials.plugin: there are no plugins here: use bearer, client_tls, oauth2, s3_signing, gcp_metadata or azure_managed_identity",
		`{` + shop + `, "discovery": {"name": "x", "resource": "d"}}`:                           "discovery.name: is deprecated: use resource and decision",
		`{` + shop + `, "discovery": {}}`:                                                       "discovery.resource: missing; give the path of the discovery bundle",
		`{` + shop + `, "status": {"prometheus": true}}`:                                        "status.prometheus: OPA's own metrics are not served here: remove it",
		`{` + shop + `, "decision_logs": {"reporting": {"trigger": "manual"}}}`:                 `decision_logs.reporting.trigger: "manual" is not taken here; use periodic or immediate`,
		`{"decision_logs": {"console": true}, "status": {"console": true}, "labels": {"a": 1}}`: "labels.a: must be a text",
	} {
		got := ""
		if err := Check([]byte(config)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", config, got, want)
		}
		if want != "" {
			if _, err := New(Options{Config: []byte(config), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}); err == nil {
				t.Errorf("New took %s", config)
			}
		}
		if strings.Contains(got, "PRIVATE KEY-----") {
			t.Errorf("a secret is told: %s", got)
		}
	}
}

func TestStatusAndDecisionsAreSentAndFlushed(t *testing.T) {
	s := newShop(t)
	s.put("authz", good{etag: `"1"`, raw: pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})})
	r := start(t, fmt.Sprintf(`{"services": {"shop": {"url": %q, "headers": {"X-Key": "geheim"}, "credentials": {"bearer": {"token": "hush"}}}}, "bundles": {"authz": {%s}}, "labels": {"id": "me", "gateway": "mine"},
		"status": {}, "decision_logs": {"reporting": {"min_delay_seconds": 3600, "max_delay_seconds": 3600}}}`, s.URL, fast))
	r.active("authz", "one")
	if got := s.requests("authz")[0].Header.Get("Authorization"); got != "Bearer hush" {
		t.Errorf("Authorization: %s", got)
	}
	if r.Decisions() == nil {
		t.Fatal("no decision log")
	}
	if err := r.Decisions().Log(t.Context(), &server.Info{DecisionID: "d1", Path: "mcp/allow", Timestamp: time.Now()}); err != nil {
		t.Fatal(err)
	}
	r.until("the status of the bundle", func(Status) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(string(s.received["/status"]), `"active_revision":"one"`)
	})
	r.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.received["/logs"]) == 0 {
		t.Error("the decision was not flushed")
	}
	var sent struct {
		Labels  map[string]string
		Bundles map[string]struct {
			Revision string `json:"active_revision"`
		}
		Plugins map[string]struct{ State string }
	}
	if err := json.Unmarshal(s.received["/status"], &sent); err != nil {
		t.Fatalf("status %s: %v", s.received["/status"], err)
	}
	if sent.Labels["id"] != "me" || sent.Labels["gateway"] != "mine" || sent.Labels["regogate_version"] != "1.2.3" || sent.Labels["version"] == "" {
		t.Errorf("labels: %v", sent.Labels)
	}
	if sent.Bundles["authz"].Revision != "one" || sent.Plugins[client].State == "NOT_READY" {
		t.Errorf("status: %+v", sent)
	}
	for _, secret := range []string{"hush", "geheim"} {
		if strings.Contains(r.logged.String(), secret) {
			t.Errorf("%q was logged", secret)
		}
	}
}

func TestABundleWithoutItsServerIsNotReady(t *testing.T) {
	s := newShop(t)
	s.Close()
	r := start(t, one(s, ""))
	if st := r.trouble("authz", "connection refused"); st.Ready || r.judges() != 0 {
		t.Errorf("status: %+v", st)
	}
}
