package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/bundle"
)

// pair is a signing key and the public half as OPA's configuration wants it.
func pair(t *testing.T) (private, public string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	priv, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: priv})), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}))
}

func keysOf(public string) string {
	raw, _ := json.Marshal(map[string]any{"first": map[string]string{"key": public, "algorithm": "ES256"}})
	return `, "keys": ` + string(raw)
}

func claims(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "claims.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWithKeysOnlyWhatIsSignedActivates(t *testing.T) {
	private, public := pair(t)
	other, _ := pair(t)
	sign := bundle.NewSigningConfig(private, "ES256", "")
	files := map[string]string{"/a.rego": allowed, "/data.json": `{"mcp": {"n": 1}}`}
	s := newShop(t)
	s.put("authz", good{etag: `"1"`, raw: pack(t, "one", []string{"mcp"}, files, sign)})
	r := start(t, one(s, keysOf(public)))
	r.active("authz", "one")

	signed := func() []entry {
		return entriesOf(t, pack(t, "two", []string{"mcp"}, files, sign))
	}
	changed := signed()
	for i, e := range changed {
		if e.name == "/a.rego" {
			changed[i].text = strings.Replace(e.text, "true", "false", 1)
		}
	}
	var missing []entry
	none := signed()
	for i, e := range none {
		if e.name != "/data.json" {
			missing = append(missing, e)
		}
		if strings.HasSuffix(e.name, ".signatures.json") {
			var sc bundle.SignaturesConfig
			if err := json.Unmarshal([]byte(e.text), &sc); err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(sc.Signatures[0], ".")
			parts[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"first"}`))
			none[i].text = fmt.Sprintf(`{"signatures": [%q]}`, parts[0]+"."+parts[1]+".")
		}
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"unsigned":    {pack(t, "two", []string{"mcp"}, files), "bundle missing .signatures.json file"},
		"another key": {pack(t, "two", []string{"mcp"}, files, bundle.NewSigningConfig(other, "ES256", "")), "failed to verify JWT signature"},
		"changed":     {tarball(t, changed...), "a.rego: digest mismatch"},
		"extra":       {tarball(t, append(signed(), entry{name: "/b.rego", text: "package mcp.b"})...), "file b.rego not included in bundle signature"},
		"missing":     {tarball(t, missing...), "file(s) [data.json] specified in bundle signatures but not found in the target bundle"},
		"alg none":    {tarball(t, none...), "failed to verify JWT signature"},
		"expired":     {pack(t, "two", []string{"mcp"}, files, bundle.NewSigningConfig(private, "ES256", claims(t, `{"exp": 1000}`))), "the signature expired at 1970-01-01T00:16:40Z: sign the bundle anew"},
		"not yet":     {pack(t, "two", []string{"mcp"}, files, bundle.NewSigningConfig(private, "ES256", claims(t, `{"nbf": 99999999999}`))), "the bundle's signature is valid only from 5138-11-16"},
	} {
		s.put("authz", good{etag: `"bad"`, raw: c.raw})
		if b := r.trouble("authz", c.want).of("authz"); b.Revision != "one" {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if n := r.judges(); n != 1 {
		t.Errorf("judged %d times", n)
	}
	s.put("authz", good{etag: `"3"`, raw: pack(t, "three", []string{"mcp"}, files, bundle.NewSigningConfig(private, "ES256", claims(t, `{"exp": 99999999999}`)))})
	r.active("authz", "three")
}

func persistent(s *shop, dir, extra string) string {
	return fmt.Sprintf(`{"services": {"shop": {"url": %q}}, "persistence_directory": %q, "bundles": {"authz": {"persist": true, %s}}%s}`, s.URL, dir, fast, extra)
}

func TestThePersistedCopyServesWhileTheServerIsDown(t *testing.T) {
	private, public := pair(t)
	dir := t.TempDir()
	disk := filepath.Join(dir, "bundles", "authz", "bundle.tar.gz")
	s := newShop(t)
	raw := pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed}, bundle.NewSigningConfig(private, "ES256", ""))
	s.put("authz", good{etag: `"1"`, raw: raw})
	r := start(t, persistent(s, dir, keysOf(public)))
	r.active("authz", "one")
	r.until("the copy", func(Status) bool { got, _ := os.ReadFile(disk); return string(got) == string(raw) })
	// What is refused is not persisted.
	r.mu.Lock()
	r.judge = func(*Candidate) error { return fmt.Errorf("no") }
	r.mu.Unlock()
	s.put("authz", good{etag: `"2"`, raw: pack(t, "two", []string{"mcp"}, map[string]string{"/a.rego": allowed}, bundle.NewSigningConfig(private, "ES256", ""))})
	r.trouble("authz", "no")
	r.stop()
	if got, _ := os.ReadFile(disk); string(got) != string(raw) {
		t.Fatal("the refused bundle was persisted")
	}

	s.mu.Lock()
	delete(s.goods, "/bundles/authz")
	s.mu.Unlock()
	r = start(t, persistent(s, dir, keysOf(public)))
	st := r.trouble("authz", "Not Found")
	if b := st.of("authz"); !st.Ready || !b.FromDisk || b.Revision != "one" || r.judges() != 1 {
		t.Errorf("status: %+v, judged %d times", b, r.judges())
	}
	s.put("authz", good{etag: `"1"`, raw: raw})
	r.until("the server's word", func(s Status) bool { return !s.of("authz").FromDisk })
	if n := r.judges(); n != 1 {
		t.Errorf("judged %d times", n)
	}
	r.stop()

	// Another key: the copy does not verify any more.
	_, public = pair(t)
	s.mu.Lock()
	delete(s.goods, "/bundles/authz")
	s.mu.Unlock()
	r = start(t, persistent(s, dir, keysOf(public)))
	r.trouble("authz", "Not Found")
	if st := r.Status(); st.Ready || r.judges() != 0 {
		t.Errorf("a copy with a foreign signature came into force: %+v", st)
	}
}

func TestADamagedCopyIsSetAside(t *testing.T) {
	s := newShop(t)
	whole := pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed})
	broken := append([]byte{}, whole...)
	broken[len(broken)/2] ^= 0xff
	private, _ := pair(t)
	expired := pack(t, "one", []string{"mcp"}, map[string]string{"/a.rego": allowed}, bundle.NewSigningConfig(private, "ES256", claims(t, `{"exp": 1000}`)))
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"truncated": {whole[:len(whole)-20], "the persisted copy is refused: the bundle is cut off in the middle"},
		"empty":     {nil, "the persisted copy is refused: is empty: want a bundle"},
		"expired":   {expired, "the persisted copy is refused: the bundle cannot be taken: the signature expired at 1970-01-01T00:16:40Z: "},
		"flipped":   {broken, "the persisted copy is refused: the bundle cannot be taken: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			disk := filepath.Join(dir, "bundles", "authz", "bundle.tar.gz")
			if err := os.MkdirAll(filepath.Dir(disk), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(disk, c.raw, 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := New(start(t, persistent(s, t.TempDir(), "")).with(persistent(s, dir, "")))
			if err != nil {
				t.Fatal(err)
			}
			p.seed(t.Context())
			if b := p.Status().of("authz"); !strings.HasPrefix(b.Problem, c.want) || !b.Since.IsZero() {
				t.Errorf("status: %+v", b)
			}
			if _, err := os.Stat(disk + ".refused"); err != nil {
				t.Error(err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.Run(ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// with is the rig's options with another configuration.
func (r *rig) with(config string) Options {
	o := r.o
	o.Config = []byte(config)
	return o
}
