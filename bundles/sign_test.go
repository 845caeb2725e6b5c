package bundles_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
	opakeys "github.com/open-policy-agent/opa/v1/keys"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/e2e/keyfile"
)

// configured is a key as OPA has it in its configuration.
func configured(t testing.TB, id string, p keyfile.Pair) map[string]*bundle.KeyConfig {
	t.Helper()
	text, err := json.Marshal(map[string]any{id: map[string]string{"key": p.Public, "algorithm": p.Algorithm}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := opakeys.ParseKeysConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAlgorithmsAreOPAs(t *testing.T) {
	for _, a := range append(keys.Algorithms(), "EdDSA", "none", "HS1", "ES256K", "rs256") {
		if ours := slices.Contains(keys.Algorithms(), a); ours != opakeys.IsSupportedAlgorithm(a) {
			t.Errorf("%s: ours says %v, OPA says otherwise", a, ours)
		}
	}
}

// TestSignaturesGoBothWays has plain OPA verify what we sign, and us what it signs,
// with every algorithm, the right key and another.
func TestSignaturesGoBothWays(t *testing.T) {
	dir := tree(t, policyFiles())
	others := keyfile.Pairs(t)
	for i, p := range keyfile.Pairs(t) {
		key, verify := p.Keys(t, "prod")
		_, wrong := others[i].Keys(t, "prod")
		ours, err := bundles.Build(dir, bundles.Options{Key: key})
		if err != nil {
			t.Fatal(p.Algorithm, err)
		}
		plain, err := opa(t, ours.Bytes, nil)
		if err == nil {
			t.Errorf("%s: plain OPA reads a signed bundle without a key: %v", p.Algorithm, plain.Manifest.Revision)
		}
		for _, id := range []string{"prod", ""} { // the configured key, and the one that the signature names
			if _, err := opa(t, ours.Bytes, bundle.NewVerificationConfig(configured(t, "prod", p), id, "", nil)); err != nil {
				t.Errorf("%s: plain OPA refuses ours: %v", p.Algorithm, err)
			}
		}
		if _, err := opa(t, ours.Bytes, bundle.NewVerificationConfig(configured(t, "prod", keyfile.Pair{Algorithm: p.Algorithm, Public: others[i].Public}), "prod", "", nil)); err == nil {
			t.Errorf("%s: plain OPA takes ours with another key", p.Algorithm)
		}
		unsigned, err := bundles.Build(dir, bundles.Options{})
		if err != nil {
			t.Fatal(err)
		}
		theirs := opaSigned(t, unsigned.Bytes, p, "prod")
		for name, body := range map[string][]byte{"ours": ours.Bytes, "theirs": theirs} {
			info, err := bundles.Verify(body, verify, "", time.Now())
			if err != nil || info.Revision != ours.Revision || info.Signatures[0].Algorithm != p.Algorithm ||
				info.Signatures[0].KeyID != "prod" || info.Signatures[0].Files != 5 {
				t.Errorf("%s, %s: %+v %v", p.Algorithm, name, info, err)
			}
			want := fmt.Sprintf("(the signature says that it is made with %s and key \"prod\"; verified with %[1]s and key \"prod\")", p.Algorithm)
			if _, err := bundles.Verify(body, wrong, "", time.Now()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s, with another key: %v", p.Algorithm, name, err)
			}
		}
	}
}

// opaSigned is the bundle as OPA itself signs it.
func opaSigned(t testing.TB, body []byte, p keyfile.Pair, id string) []byte {
	t.Helper()
	b, err := opa(t, body, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.GenerateSignature(bundle.NewSigningConfig(p.Private, p.Algorithm, ""), id, true); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := bundle.NewWriter(&out).UseModulePath(true).DisableFormat(true).Write(b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func of(t testing.TB, algorithm string) keyfile.Pair {
	t.Helper()
	all := keyfile.Pairs(t)
	return all[slices.IndexFunc(all, func(p keyfile.Pair) bool { return p.Algorithm == algorithm })]
}

// TestSignLeavesFilesAsTheyAre signs what people and other tools put into bundles.
func TestSignLeavesFilesAsTheyAre(t *testing.T) {
	p := of(t, "ES256")
	key, verify := p.Keys(t, "")
	files := []entry{
		{"./a.rego", allow},
		{"/mcp/b.rego", "package mcp.b # no line end"},
		{"mcp/x/data.yaml", "y: 1.0\nn: no\nbig: 12345678901234567890\n"},
		{"mcp/grants/data.json", " [ \"<alice>\", 1e2 ] "},
		{"LICENSE", "free"},
		{"other.json", "not even JSON"},
		{".manifest", ` {"roots": ["mcp"], "revision": "r1", "metadata": {"who": "me"}} `},
		{"policy.wasm", "\x00asm"},
	}
	unsigned := archive(t, files...)
	signed, err := bundles.Sign(unsigned, key, bundles.Claims{})
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range []string{"once", "again"} {
		got := entries(t, signed)
		if !slices.Equal(got[:len(got)-1], files) || got[len(got)-1].name != "/.signatures.json" {
			t.Fatalf("%s: signing made of %q\n%q", round, files, got)
		}
		config := configured(t, "k", p)
		b, err := opa(t, signed, bundle.NewVerificationConfig(config, "k", "", nil))
		if err != nil || len(b.Signatures.Signatures) != 1 || b.Manifest.Revision != "r1" {
			t.Fatalf("%s: plain OPA: %v", round, err)
		}
		if _, err := bundles.Verify(signed, verify, "", time.Now()); err != nil {
			t.Fatal(round, err)
		}
		if signed, err = bundles.Sign(signed, key, bundles.Claims{}); err != nil {
			t.Fatal(round, err)
		}
	}
}

func TestVerifyRefusesWhatWasChanged(t *testing.T) {
	p := of(t, "PS384")
	key, verify := p.Keys(t, "prod")
	b, err := bundles.Build(tree(t, policyFiles()), bundles.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	good := entries(t, b.Bytes)
	where := func(name string) int { return slices.IndexFunc(good, func(e entry) bool { return e.name == name }) }
	change := func(f func(list []entry) []entry) []byte { return archive(t, f(slices.Clone(good))...) }
	edit := func(name string, f func(string) string) []byte {
		return change(func(list []entry) []entry {
			list[where(name)].body = f(list[where(name)].body)
			return list
		})
	}
	if _, err := bundles.Verify(change(func(l []entry) []entry { return l }), verify, "", time.Now()); err != nil {
		t.Fatalf("packed anew it does not verify: %v", err)
	}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"module":         {edit("/authz.rego", func(s string) string { return s + " " }), ": its files are not those that were signed: get it anew, or sign it again"},
		"data":           {edit("/data.json", func(s string) string { return strings.Replace(s, "bob", "eve", 1) }), "data.json: digest mismatch"},
		"revision":       {edit("/.manifest", func(s string) string { return strings.Replace(s, b.Revision, "other", 1) }), ".manifest: digest mismatch"},
		"another module": {change(func(l []entry) []entry { return append(l, entry{"/x.rego", "package mcp.x"}) }), "file x.rego not included in bundle signature"},
		"more data":      {change(func(l []entry) []entry { return append(l, entry{"/mcp/x/data.json", "1"}) }), "file mcp/x/data.json not included in bundle signature"},
		"a patch":        {change(func(l []entry) []entry { return append(l, entry{"/patch.json", `{"data": []}`}) }), "not verified: it is a delta bundle, which cannot be signed: use the whole one"},
		"no module":      {change(func(l []entry) []entry { return slices.Delete(l, where("/lib/a.rego"), where("/lib/a.rego")+1) }), "[lib/a.rego] specified in bundle signatures but not found in the target bundle: its files are not those that were signed: get it anew, or sign it again"},
		"renamed":        {change(func(l []entry) []entry { l[where("/lib/a.rego")].name = "/lib/b.rego"; return l }), "not verified: file lib/b.rego not included in bundle signature: its files are not those that were signed: get it anew, or sign it again"},
		"no signature": {change(func(l []entry) []entry {
			return slices.Delete(l, where("/.signatures.json"), where("/.signatures.json")+1)
		}), "not verified: it is not signed: sign it with regogate bundle sign"},
		"empty list": {edit("/.signatures.json", func(string) string { return `{"signatures": []}` }), "not verified: it is not signed"},
		"two":        {edit("/.signatures.json", func(s string) string { return twice(t, s) }), "multiple JWTs not supported"},
		"unsecured":  {edit("/.signatures.json", func(s string) string { return unsecured(t, s) }), "failed to verify JWT signature"},
		"two files": {change(func(l []entry) []entry {
			return append(l, entry{"/x/.signatures.json", l[where("/.signatures.json")].body})
		}), "multiple signatures files"},
		"rubbish":      {edit("/.signatures.json", func(string) string { return `{"signatures": ["x"]}` }), "not verified"},
		"other plugin": {edit("/.signatures.json", func(s string) string { return strings.Replace(s, "{", `{"plugin": "own",`, 1) }), "no verifier exists under id own"},
	} {
		info, err := bundles.Verify(c.body, verify, "", time.Now())
		switch {
		case err == nil:
			t.Errorf("%s: verified %+v", name, info)
		case !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: %q, want %q", name, err, c.want)
		}
	}
}

func twice(t testing.TB, text string) string {
	var s struct{ Signatures []string }
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"signatures": [%q, %[1]q]}`, s.Signatures[0])
}

// unsecured says that the algorithm is none.
func unsecured(t testing.TB, text string) string {
	var s struct{ Signatures []string }
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	payload := strings.Split(s.Signatures[0], ".")[1]
	return fmt.Sprintf(`{"signatures": ["eyJhbGciOiJub25lIn0.%s."]}`, payload)
}

func TestScopeAndExpiry(t *testing.T) {
	p := of(t, "HS256")
	key, verify := p.Keys(t, "")
	end := time.Unix(2000000000, 0).UTC()
	b, err := bundles.Build(tree(t, policyFiles()), bundles.Options{Key: key, Claims: bundles.Claims{Scope: "prod", Expires: end}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := bundles.Verify(b.Bytes, verify, "prod", end.Add(-time.Second))
	want := bundles.Signature{Algorithm: "HS256", Scope: "prod", Expires: end, Files: 5}
	if err != nil || len(info.Signatures) != 1 || info.Signatures[0] != want {
		t.Errorf("verified %+v: %v", info, err)
	}
	if _, err := opa(t, b.Bytes, bundle.NewVerificationConfig(configured(t, "k", p), "k", "prod", nil)); err != nil {
		t.Errorf("plain OPA: %v", err)
	}
	for want, c := range map[string]struct {
		scope string
		at    time.Time
	}{
		`not verified: the signature is for the scope "prod", not "": name its scope, or sign the bundle for this one`:        {"", end.Add(-time.Second)},
		`not verified: the signature is for the scope "prod", not "staging": name its scope, or sign the bundle for this one`: {"staging", end.Add(-time.Second)},
		`the bundle cannot be taken: the signature expired at 2033-05-18T03:33:20Z: sign the bundle anew`:                     {"prod", end},
	} {
		if _, err := bundles.Verify(b.Bytes, verify, c.scope, c.at); err == nil || err.Error() != want {
			t.Errorf("scope %q at %v: %v, want %s", c.scope, c.at, err, want)
		}
	}
	if _, err := bundles.Sign(b.Bytes, key, bundles.Claims{}); err != nil {
		t.Errorf("an expired bundle cannot be signed anew: %v", err)
	}
}

func TestSignRefuses(t *testing.T) {
	key, _ := of(t, "HS256").Keys(t, "")
	for want, body := range map[string][]byte{
		"is a delta bundle, which OPA cannot verify: sign the whole one": archive(t, entry{"/patch.json", `{"data": [{"op": "upsert", "path": "/mcp/x", "value": 1}]}`}),
		"is no bundle: want a gzipped tar archive":                       []byte("<!DOCTYPE html>"),
		"a.rego:1: unexpected eof token":                                 archive(t, entry{"/a.rego", "package"}),
		"bundle load failed on /data.json":                               archive(t, entry{"/data.json", "{"}),
		"do not permit 'package mcp.authz'":                              archive(t, entry{"/a.rego", allow}, entry{"/.manifest", `{"roots": ["x"]}`}),
	} {
		if _, err := bundles.Sign(body, key, bundles.Claims{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestKeySetVerifies has the signature choose the key of a set.
func TestKeySetVerifies(t *testing.T) {
	set, private := keyfile.JWKS(t)
	path := write(t, filepath.Join(t.TempDir(), "public.json"), set)
	all, err := keys.ReadVerification(path, "", "")
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, id := range []string{"rsa", "ec", "oct"} {
		key, err := keys.ReadSigning(write(t, filepath.Join(t.TempDir(), "private.json"), private), "", id)
		if err != nil {
			t.Fatal(id, err)
		}
		b, err := bundles.Build(tree(t, policyFiles()), bundles.Options{Key: key})
		if err != nil {
			t.Fatal(id, err)
		}
		if info, err := bundles.Verify(b.Bytes, all, "", time.Now()); err != nil || info.Signatures[0].KeyID != id {
			t.Errorf("%s: %+v %v", id, info, err)
		}
		for _, k := range all {
			if _, err := bundles.Verify(b.Bytes, []*keys.Key{k}, "", time.Now()); (err == nil) != (k.ID == id) {
				t.Errorf("made with %s, verified with %v: %v", id, k, err)
			}
		}
	}
	key, _ := of(t, "RS256").Keys(t, "another")
	b, err := bundles.Build(tree(t, policyFiles()), bundles.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	want := `not verified: verification key corresponding to ID another not found (the signature says that it is made with RS256 and key "another"; ` +
		`verified with PS256 and key "rsa" or ES384 and key "ec" or HS512 and key "oct")`
	if _, err := bundles.Verify(b.Bytes, all, "", time.Now()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := bundles.Verify(nil, nil, "", time.Now()); err == nil {
		t.Error("verified nothing with nothing")
	}
}
