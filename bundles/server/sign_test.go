package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/bundles"
	"github.com/regogate/regogate/bundles/keys"
)

// newKey makes one for ES256, whose signatures are never the same twice.
func newKey(t *testing.T, id string) *keys.Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return readKey(t, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), "", id)
}

const secret = "one secret, of words enough"

func hmacKey(t *testing.T) *keys.Key { return readKey(t, []byte(secret), "HS256", "prod") }

func readKey(t *testing.T, text []byte, algorithm, id string) *keys.Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := keys.ReadSigning(path, algorithm, id)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// desk is a server whose bundle is looked after by hand.
type desk struct {
	*stand
	b      *served
	config Config
	key    *keys.Key
	claims bundles.Claims
}

func newDesk(t *testing.T, adjust ...func(*Config)) *desk {
	t.Helper()
	d := &desk{stand: &stand{t: t, dir: t.TempDir()}}
	d.save("true")
	var err error
	if d.store, err = OpenStore(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	d.config = d.stand.config()
	d.config.Sign = func() (*keys.Key, bundles.Claims, error) { return d.key, d.claims, nil }
	for _, f := range adjust {
		f(&d.config)
	}
	d.restart()
	return d
}

func (d *desk) restart() {
	d.t.Helper()
	var err error
	if d.server, err = New(d.config); err != nil {
		d.t.Fatal(err)
	}
	d.b = d.server.served["authz"]
}

// look returns what is served then.
func (d *desk) look() (Status, []byte) {
	d.server.look(d.b)
	return d.b.status(), d.b.body
}

func (d *desk) list() []Revision {
	d.t.Helper()
	list, err := d.store.Revisions("authz")
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

// What is served is signed anew where the signing is another or half of its time
// has passed, and never for nothing.
func TestSignedAnew(t *testing.T) {
	d := newDesk(t)
	one, two := newKey(t, "one"), newKey(t, "two")
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	last := ""
	for _, step := range []struct {
		name    string
		key     *keys.Key
		scope   string
		expires time.Time
		same    bool
	}{
		{"unsigned", nil, "", time.Time{}, false},
		{"unsigned still", nil, "", time.Time{}, true},
		{"signed", one, "", time.Time{}, false},
		{"signed still", one, "", time.Time{}, true},
		{"scope", one, "prod", time.Time{}, false},
		{"another key", two, "prod", time.Time{}, false},
		{"an hour", two, "prod", in(time.Hour), false},
		{"an hour is more than half of it", two, "prod", in(90 * time.Minute), true},
		{"an hour is less than half of it", two, "prod", in(3 * time.Hour), false},
		{"less time", two, "prod", in(2 * time.Hour), false},
		{"no end", two, "prod", time.Time{}, false},
		{"no key", nil, "", time.Time{}, false},
	} {
		d.key, d.claims = step.key, bundles.Claims{Scope: step.scope, Expires: step.expires}
		st, body := d.look()
		if same := st.ETag == last; same != step.same || st.SourceProblem+st.StoreProblem != "" {
			t.Errorf("%s: %+v", step.name, st)
		}
		last = st.ETag
		d.restart()
		if again, _ := d.look(); again.ETag != last || len(d.list()) != 1 {
			t.Errorf("%s: published again: %+v", step.name, d.list())
		}
		if step.key == nil {
			if i, err := bundles.Inspect(body); err != nil || len(i.Signatures) != 0 {
				t.Errorf("%s: %+v %v", step.name, i, err)
			}
			continue
		}
		info, err := bundles.Verify(body, []*keys.Key{step.key}, step.scope, time.Now())
		if err != nil || !info.Signatures[0].Expires.Equal(st.Expires) || st.Expires.IsZero() != step.expires.IsZero() {
			t.Errorf("%s: %+v %v, status %v", step.name, info, err, st.Expires)
		}
	}
}

// It is so for a revision that is pinned, and where the source is broken.
func TestSignedAnewWithoutSource(t *testing.T) {
	d := newDesk(t)
	d.key = newKey(t, "one")
	first, _ := d.look()
	d.save("false")
	second, _ := d.look()
	if err := d.store.Pin("authz", first.Revision); err != nil {
		t.Fatal(err)
	}
	d.save("tru(")
	before, _ := d.look()
	if before.ETag != first.ETag || !before.Pinned || before.SourceProblem == "" {
		t.Fatalf("pinned: %+v", before)
	}
	d.key = newKey(t, "two")
	after, body := d.look()
	if _, err := bundles.Verify(body, []*keys.Key{d.key}, "", time.Now()); err != nil || after.ETag == before.ETag || after.Revision != first.Revision {
		t.Errorf("signed anew: %+v %v", after, err)
	}
	list := d.list()
	if len(list) != 2 || list[0].Revision != first.Revision || list[1].Revision != second.Revision || !list[0].Published.Equal(first.Published) {
		t.Errorf("retained: %+v", list)
	}
	if list[0].Signed.KeyID != "two" || list[1].Signed.KeyID != "one" || list[0].Signed.Fingerprint == list[1].Signed.Fingerprint {
		t.Errorf("how they are signed: %+v", list)
	}
}

// What is served from the start and after a pin is set is signed as is wanted by then:
// nobody gets one that has expired.
func TestSignedAnewWhenPinned(t *testing.T) {
	d := newDesk(t)
	d.key, d.claims = newKey(t, "one"), bundles.Claims{Expires: time.Now().Add(time.Hour)}
	first, _ := d.look()
	d.save("false")
	d.key, d.claims.Expires = newKey(t, "two"), time.Now().Add(10*time.Hour)
	d.look()
	if err := d.store.Pin("authz", first.Revision); err != nil {
		t.Fatal(err)
	}
	d.server.show(d.b)
	if st := d.b.status(); st.Revision != first.Revision || !st.Expires.Equal(d.claims.Expires.Truncate(time.Second)) {
		t.Errorf("pinned: %+v", st)
	}
	d.key = newKey(t, "three")
	d.restart()
	if r := d.b.now; r.Revision != first.Revision || r.Signed.KeyID != "three" {
		t.Errorf("at the start: %+v", r)
	}
}

// Two files that differ in what others signed are the same when they are signed here.
func TestSameBytesOfTwoContents(t *testing.T) {
	path := bundleFile(t, "v1")
	d := newDesk(t, func(c *Config) { c.Bundles["authz"] = path })
	d.key = hmacKey(t)
	first, body := d.look()
	put(t, path, body)
	for range 2 {
		if st, _ := d.look(); st.ETag != first.ETag || st.StoreProblem != "" || len(d.list()) != 1 {
			t.Errorf("%+v: %+v", st, d.list())
		}
	}
}

// A key that cannot be read keeps what is new from being published, and is told.
func TestKeyCannotBeRead(t *testing.T) {
	d := newDesk(t)
	d.look()
	d.server.config.Sign = func() (*keys.Key, bundles.Claims, error) { return nil, bundles.Claims{}, os.ErrNotExist }
	d.save("false")
	st, body := d.look()
	text, err := unzipped(body)
	if st.SourceProblem != os.ErrNotExist.Error() || err != nil || !strings.Contains(text, "allow := true") {
		t.Errorf("%+v %v", st, err)
	}
}
