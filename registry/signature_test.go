package registry

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"

	signing "github.com/regogate/regogate/bundles/keys"
	"github.com/regogate/regogate/e2e/keyfile"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// keyring is a file with public keys, and the private keys to it by their ids.
type keyring struct {
	path    string
	private map[string]*signing.Key
}

func newKeyring(t testing.TB, ids ...string) *keyring {
	t.Helper()
	dir := t.TempDir()
	public, private := keyfile.Set(t, ids...)
	write(t, dir, "public.json", public)
	write(t, dir, "private.json", private)
	r := &keyring{filepath.Join(dir, "public.json"), map[string]*signing.Key{}}
	for _, id := range ids {
		k, err := signing.ReadSigning(filepath.Join(dir, "private.json"), "", id)
		if err != nil {
			t.Fatal(err)
		}
		r.private[id] = k
	}
	return r
}

func (r *keyring) verifier(t testing.TB) *Verifier {
	t.Helper()
	v, err := NewVerifier(VerifyConfig{Keys: r.path})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// withSignature is the catalogue with a signature, whatever that is of.
func withSignature(t testing.TB, c *Catalogue, signature string) *Catalogue {
	t.Helper()
	given := *c
	given.Signature = signature
	signed, err := NewCatalogue("", given)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func signed(t testing.TB, c *Catalogue, key *signing.Key, claims Claims, at time.Time) *Catalogue {
	t.Helper()
	signature, err := Sign(c, key, claims, at)
	if err != nil {
		t.Fatal(err)
	}
	return withSignature(t, c, signature)
}

func TestSignaturesOfEveryAlgorithm(t *testing.T) {
	c := mustCatalogue(t, validTool("a", "t"))
	others := keyfile.Pairs(t)
	for i, p := range keyfile.Pairs(t) {
		for _, id := range []string{"", "prod"} {
			key, _ := p.Keys(t, id)
			dir := t.TempDir()
			write(t, dir, "right", p.Public)
			write(t, dir, "wrong", others[i].Public)
			of := func(name string) *Verifier {
				v, err := NewVerifier(VerifyConfig{Keys: filepath.Join(dir, name), Algorithm: p.Algorithm, KeyID: id})
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			s := signed(t, c, key, Claims{ExpiresIn: time.Hour}, noon.Add(time.Millisecond))
			got, err := of("right").Verify(s, noon)
			if want := (Signed{key.String(), noon, noon.Add(time.Hour)}); err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", p.Algorithm, got, err, want)
			}
			want := "its signature is not what " + key.String() + " made of it: another key did, or somebody changed it; sign the catalogue again"
			if got, err := of("wrong").Verify(s, noon); err == nil || err.Error() != want || got != (Signed{}) {
				t.Errorf("%s, with another key: %+v, %v", p.Algorithm, got, err)
			}
		}
	}
}

// forge makes a JWS with the key, whatever it says.
func forge(t testing.TB, key *signing.Key, typ string, claims jwt.Claims) string {
	t.Helper()
	s, err := key.Sign(typ, claims)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raw makes a JWS of the header, which nothing signed.
func raw(header string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte("{}")) + ".AAAA"
}

func TestVerifyRefuses(t *testing.T) {
	ring := newKeyring(t, "a", "b")
	one := newKeyring(t, "b")
	c := mustCatalogue(t, validTool("a", "t"))
	a, says := ring.private["a"], jwt.MapClaims{"content": c.Content, "format": format, "iat": noon.Unix()}
	but := func(name string, value any) jwt.MapClaims {
		m := jwt.MapClaims{}
		for k, v := range says {
			m[k] = v
		}
		if m[name] = value; value == nil {
			delete(m, name)
		}
		return m
	}
	sign := func(c *Catalogue, claims Claims, at time.Time) string { return signed(t, c, a, claims, at).Signature }
	good := sign(c, Claims{}, noon)
	parts := strings.Split(good, ".")
	sep := "."
	const again = ": sign the catalogue again"
	const command = ": sign the catalogue with regogate registry sign"
	changed := "its signature is not what ES256 and key \"a\" made of it: another key did, or somebody changed it; sign the catalogue again"
	known := ring.path + ` has "a", "b": sign the catalogue again with a key that is there, or add the key`
	for name, x := range map[string]struct{ signature, want string }{
		"good":              {good, ""},
		"good claims":       {forge(t, a, signatureType, says), ""},
		"none":              {"", "it is not signed: sign it with regogate registry sign"},
		"two parts":         {parts[0] + sep + parts[1], "its signature is no JWS in compact form" + again},
		"no JSON":           {raw("x"), "its signature is no JWS in compact form" + again},
		"claims of a kind":  {forge(t, a, signatureType, but("content", 1)), "its signature is no JWS in compact form" + again},
		"a bundle's":        {forge(t, a, "JWT", says), `its signature is for something else, of type "JWT"` + command},
		"an access token's": {forge(t, a, "at+jwt", says), `its signature is for something else, of type "at+jwt"` + command},
		"no type":           {raw(`{"alg":"ES256","kid":"a"}`), `its signature is for something else, of type ""` + command},
		"extensions":        {raw(`{"alg":"ES256","kid":"a","typ":"` + signatureType + `","crit":["exp"]}`), "its signature asks for extensions that are not known here" + command},
		"no key":            {raw(`{"alg":"ES256","typ":"` + signatureType + `"}`), "its signature names no key, and " + known},
		"unknown key":       {raw(`{"alg":"ES256","typ":"` + signatureType + `","kid":"c"}`), `its signature is of the key "c", and ` + known},
		"odd key":           {raw(`{"alg":"ES256","typ":"` + signatureType + `","kid":1}`), `its signature is of the key "1", and ` + known},
		"alg none":          {raw(`{"alg":"none","typ":"` + signatureType + `","kid":"a"}`), `its signature is made with "none", and ES256 and key "a" is expected: sign the catalogue again, or correct registry.verify`},
		"alg unknown":       {raw(`{"alg":"ES1","typ":"` + signatureType + `","kid":"a"}`), `its signature is made with "ES1", and ES256 and key "a" is expected: sign the catalogue again, or correct registry.verify`},
		"alg HS256":         {raw(`{"alg":"HS256","typ":"` + signatureType + `","kid":"a"}`), `its signature is made with "HS256", and ES256 and key "a" is expected: sign the catalogue again, or correct registry.verify`},
		"another key's":     {signed(t, c, one.private["b"], Claims{}, noon).Signature, strings.ReplaceAll(changed, `"a"`, `"b"`)},
		"no signature":      {parts[0] + sep + parts[1] + sep, changed},
		"other claims":      {parts[0] + sep + strings.Split(sign(c, Claims{}, noon.Add(time.Second)), sep)[1] + sep + parts[2], changed},
		"other content":     {sign(mustCatalogue(t, validTool("a", "u")), Claims{}, noon), "it is not what was signed at 2026-03-01T12:00:00Z: sign it again, or bring back what was signed"},
		"other format":      {forge(t, a, signatureType, but("format", format-1)), "it is signed for the format 2 of catalogues, and this release has 3: sign it with this release"},
		"no format":         {forge(t, a, signatureType, but("format", nil)), "it is signed for the format 0 of catalogues, and this release has 3: sign it with this release"},
		"no content":        {forge(t, a, signatureType, but("content", nil)), "it is not what was signed at 2026-03-01T12:00:00Z: sign it again, or bring back what was signed"},
		"no time":           {forge(t, a, signatureType, but("iat", nil)), "its signature does not say when it was made" + command},
		"skew":              {sign(c, Claims{}, noon.Add(time.Minute)), ""},
		"future":            {sign(c, Claims{}, noon.Add(61*time.Second)), "its signature is from 2026-03-01T12:01:01Z, which is yet to come: correct the clock here, or there and sign it again"},
		"nearly expired":    {sign(c, Claims{ExpiresIn: time.Hour}, noon.Add(-time.Hour+time.Second)), ""},
		"expired":           {sign(c, Claims{ExpiresIn: time.Hour}, noon.Add(-time.Hour)), "its signature expired at 2026-03-01T12:00:00Z: sign it again"},
	} {
		got, err := ring.verifier(t).Verify(withSignature(t, c, x.signature), noon)
		says := ""
		if err != nil {
			says = err.Error()
		}
		if says != x.want || (got != Signed{}) != (x.want == "") {
			t.Errorf("%s: %+v\n%s\nwant\n%s", name, got, says, x.want)
		}
	}
	// A key by itself verifies also what names no key, and, without a name, under any.
	unnamed, named := *one.private["b"], *one.private["b"]
	unnamed.ID, named.ID = "", "else"
	if _, err := one.verifier(t).Verify(signed(t, c, &unnamed, Claims{}, noon), noon); err != nil {
		t.Error(err)
	}
	want := `its signature is of the key "else", and ` + one.path + ` has "b": sign the catalogue again with a key that is there, or add the key`
	if _, err := one.verifier(t).Verify(signed(t, c, &named, Claims{}, noon), noon); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestSignRefuses(t *testing.T) {
	ring, c := newKeyring(t, "a"), mustCatalogue(t)
	for _, d := range []time.Duration{-time.Hour, time.Millisecond} {
		want := "sign the catalogue: it cannot expire in " + d.String() + ": want a second or more, or 0 for never"
		if s, err := Sign(c, ring.private["a"], Claims{ExpiresIn: d}, noon); err == nil || err.Error() != want || s != "" {
			t.Errorf("%s: %q, %v", d, s, err)
		}
	}
}

// Whoever changes one bit of what is signed, and every digest so that it fits, gets
// either no catalogue or one that is refused.
func TestSignatureCoversEveryBit(t *testing.T) {
	ring := newKeyring(t, "a")
	verifier := ring.verifier(t)
	tool := validTool("s", "t")
	tool.Description, tool.Labels, tool.SHA256 = "Does it.", map[string]string{"tier": "gold"}, sha
	guess := validTool("u", "t")
	guess.Suggested = true
	c := signed(t, mustCatalogue(t, tool, guess), ring.private["a"], Claims{}, noon)
	_, parts := encoded(t, c)
	taken := 0
	for n := range parts {
		for bit := range 8 * len(parts[n]) {
			text := []byte(parts[n])
			text[bit/8] ^= 1 << (bit % 8)
			changed := slices.Clone(parts)
			changed[n] = string(text)
			i := index{Quarantine: c.Quarantine, Signature: c.Signature, Parts: slices.Clone(c.parts)}
			i.Parts[n].Digest = digest(text)
			data, err := encodeIndex(i)
			if err != nil {
				t.Fatal(err)
			}
			forged, err := decoded(sealed(string(data)), string(data), changed)
			if err != nil {
				continue
			}
			taken++
			if _, err := verifier.Verify(forged, noon); err == nil || !strings.HasPrefix(err.Error(), "it is not what was signed at ") {
				t.Fatalf("%v: %s", err, text)
			}
		}
	}
	if taken < 100 {
		t.Errorf("only %d changes made another catalogue", taken)
	}
}

// Two catalogues have the same signature only where they say the same.
func TestSignatureIsOfOneContent(outer *testing.T) {
	ring := newKeyring(outer, "a")
	verifier, key := ring.verifier(outer), ring.private["a"]
	rapid.Check(outer, func(t *rapid.T) {
		var both [2]*Catalogue
		for i := range both {
			c, err := NewCatalogue("", Catalogue{Servers: drawServers(t), Tools: drawTools(t)})
			if err != nil {
				t.Fatal(err)
			}
			both[i] = c
		}
		same := reflect.DeepEqual(both[0].Servers, both[1].Servers) && reflect.DeepEqual(both[0].Tools, both[1].Tools)
		s := signed(outer, both[0], key, Claims{}, noon)
		if _, err := verifier.Verify(s, noon); err != nil {
			t.Fatal(err)
		}
		if _, err := verifier.Verify(withSignature(outer, both[1], s.Signature), noon); (err == nil) != same {
			t.Fatalf("%v: %+v and %+v", err, both[0], both[1])
		}
	})
}

// No other text than the signature itself passes for it.
func TestSignatureIsOfOneSpelling(outer *testing.T) {
	ring := newKeyring(outer, "a")
	verifier, c := ring.verifier(outer), mustCatalogue(outer, validTool("a", "t"))
	good := signed(outer, c, ring.private["a"], Claims{}, noon).Signature
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	for at := range good {
		for n := range 3 {
			other := []byte(good)
			other[at] = alphabet[(strings.IndexByte(alphabet, good[at])+1+n*20)%len(alphabet)]
			if _, err := verifier.Verify(withSignature(outer, c, string(other)), noon); err == nil || strings.Contains(err.Error(), "\n") {
				outer.Errorf("%d: %s: %v", at, other, err)
			}
		}
	}
	for _, other := range []string{good + ".", "." + good, good + "A", good[:len(good)-1]} {
		if _, err := verifier.Verify(withSignature(outer, c, other), noon); err == nil {
			outer.Errorf("accepted %s", other)
		}
	}
}

// A quarantine must not wait for who holds the key.
func TestQuarantineIsNotSigned(outer *testing.T) {
	ring := newKeyring(outer, "a")
	verifier, key := ring.verifier(outer), ring.private["a"]
	rapid.Check(outer, func(t *rapid.T) {
		given := Catalogue{Servers: drawServers(t), Tools: drawTools(t), Quarantine: drawQuarantine(t)}
		c, err := NewCatalogue("", given)
		if err != nil {
			t.Fatal(err)
		}
		given = *signed(outer, c, key, Claims{}, noon)
		given.Quarantine = drawQuarantine(t)
		other, err := NewCatalogue("", given)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verifier.Verify(other, noon); err != nil {
			t.Fatal(err)
		}
	})
}

func drawQuarantine(t *rapid.T) (list []Quarantined) {
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,3}`), 0, 3, rapid.ID).Draw(t, "quarantine") {
		list = append(list, Quarantined{Server: name, Tool: rapid.StringMatching(`[a-c]{0,3}`).Draw(t, "tool"), Reason: "r"})
	}
	return list
}

func TestSignFile(t *testing.T) {
	ring := newKeyring(t, "a")
	dir := t.TempDir()
	write(t, dir, "c.yaml", catalogueYAML("a", 2, "read"))
	for name, sig := range map[string]string{dir: "catalogue.sig", filepath.Join(dir, "c.yaml"): "c.yaml.sig"} {
		write(t, dir, sig, "of no use\n") // is replaced, and does not matter
		c, path, err := SignFile(name, ring.private["a"], Claims{}, noon)
		if err != nil || path != filepath.Join(dir, sig) || len(c.Tools) != 2 {
			t.Fatalf("%v, %s, %v", c, path, err)
		}
		if _, err := ring.verifier(t).Verify(c, noon); err != nil {
			t.Error(err)
		}
		if text := readText(t, path); text != c.Signature+"\n" {
			t.Errorf("%q", text)
		}
		f := openFile(t, name)
		if got := load(t, f); got.Head != c.Head || got.Signature != c.Signature {
			t.Errorf("read %v, signed %v", got.Head, c.Head)
		}
		f.Close()
	}
	write(t, dir, "c.yaml", "version: 2\nservers: 1\n")
	before := readText(t, filepath.Join(dir, "catalogue.sig"))
	want := dir + "/c.yaml:2: servers: want a mapping of keys to values, this is a number"
	if _, _, err := SignFile(dir, ring.private["a"], Claims{}, noon); err == nil || err.Error() != want || readText(t, filepath.Join(dir, "catalogue.sig")) != before {
		t.Errorf("a broken catalogue: %v", err)
	}
	if _, _, err := SignFile(filepath.Join(dir, "absent"), ring.private["a"], Claims{}, noon); err == nil || !strings.HasPrefix(err.Error(), "open the catalogue: ") {
		t.Errorf("no catalogue: %v", err)
	}
}

// Several commands at once leave a signature of what is there in the end.
func TestSignFileWaitsItsTurn(t *testing.T) {
	ring := newKeyring(t, "a")
	dir := t.TempDir()
	write(t, dir, "c.yaml", catalogueYAML("a", 8, "read"))
	done := make(chan error)
	for i := range 8 {
		go func() {
			f, err := OpenFile(dir, quiet())
			if err == nil {
				_, err = f.Approve(t.Context(), Author{Name: "x"}, "a", fmt.Sprintf("tool_%05d", i), sha, []byte("{}"))
				f.Close()
			}
			if err == nil {
				_, _, err = SignFile(dir, ring.private["a"], Claims{}, noon)
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	f := openFile(t, dir)
	defer f.Close()
	c := load(t, f)
	if _, err := ring.verifier(t).Verify(c, noon); err != nil {
		t.Error(err)
	}
	if slices.ContainsFunc(c.Tools, func(t Tool) bool { return t.SHA256 != sha }) {
		t.Errorf("%+v", c.Tools)
	}
}

func TestSignatureFile(t *testing.T) {
	ring := newKeyring(t, "a")
	dir := t.TempDir()
	write(t, dir, "c.yaml", catalogueYAML("a", 1, "read"))
	c, sig, err := SignFile(dir, ring.private["a"], Claims{}, noon)
	if err != nil {
		t.Fatal(err)
	}
	f := polled(t, dir)
	defer f.Close()
	next := func() Head { head(t, f); return head(t, f) } // a change has to look the same twice
	const malformed = "want one line, as regogate registry sign writes it: sign the catalogue again"
	for name, x := range map[string]struct{ text, problem string }{
		"as written":   {c.Signature + "\n", ""},
		"no line end":  {c.Signature, ""},
		"empty":        {"", malformed},
		"a line end":   {"\n", malformed},
		"two lines":    {c.Signature + "\n\n", malformed},
		"spaces":       {" " + c.Signature, malformed},
		"PEM":          {"-----BEGIN PUBLIC KEY-----\n", malformed},
		"binary":       {"\x00\xff", malformed},
		"large":        {strings.Repeat("A", maxSignature+1), malformed},
		"larger still": {strings.Repeat("A", 1<<20), malformed},
	} {
		write(t, dir, "catalogue.sig", x.text)
		f.touched.Store(true) // some texts are of one length, and may be of one time
		if head(t, f) != c.Head {
			t.Errorf("%s: the good one did not stay", name)
		}
		want := []string{}
		if x.problem != "" {
			want = []string{filepath.ToSlash(sig) + ": " + x.problem}
		}
		if got := f.Problems(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	write(t, dir, "catalogue.sig", "a.b.c") // what it is worth, others say
	if next() == c.Head || load(t, f).Signature != "a.b.c" || len(f.Problems()) != 0 {
		t.Errorf("%q, %q", load(t, f).Signature, f.Problems())
	}
	if err := os.Remove(sig); err != nil {
		t.Fatal(err)
	}
	if next(); load(t, f).Signature != "" {
		t.Errorf("still %q", load(t, f).Signature)
	}
	if err := os.Mkdir(sig, 0o700); err != nil {
		t.Fatal(err)
	}
	if next(); len(f.Problems()) != 1 || f.Problems()[0] != filepath.ToSlash(sig)+": catalogue.sig is not a regular file" {
		t.Errorf("a directory: %q", f.Problems())
	}
}

// The signature's file is watched like the others.
func TestSignatureFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "c.yaml", catalogueYAML("a", 1, "read"))
	for name, sig := range map[string]string{dir: "catalogue.sig", filepath.Join(dir, "c.yaml"): "c.yaml.sig"} {
		f := openFile(t, name)
		write(t, dir, sig, "a.b.c\n")
		select {
		case <-f.Changed():
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no hint", sig)
		}
		if load(t, f).Signature != "a.b.c" {
			t.Errorf("%s: %q", sig, load(t, f).Signature)
		}
		f.Close()
	}
}

// A signature tells nothing of the key but its name.
func TestSignatureKeepsTheSecret(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "secret", "hunter2")
	key, err := signing.ReadSigning(filepath.Join(dir, "secret"), "HS256", "s")
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier(VerifyConfig{Keys: filepath.Join(dir, "secret"), Algorithm: "HS256", KeyID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	c := signed(t, mustCatalogue(t), key, Claims{}, noon)
	s, err := v.Verify(c, noon)
	out := bytes.NewBufferString(c.Signature)
	fmt.Fprintf(out, "%+v %v", s, err)
	_, err = v.Verify(mustCatalogue(t), noon)
	if fmt.Fprintf(out, "%v", err); strings.Contains(out.String(), "hunter2") {
		t.Error(out)
	}
}
