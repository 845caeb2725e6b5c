package registry

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regogate/regogate/e2e/keyfile"
	"github.com/regogate/regogate/e2e/redisserver"
	"github.com/regogate/regogate/registry/strictyaml"
)

// verifying is a keeper that takes only what a key of the ring signed.
func verifying(t testing.TB, source Source, ring *keyring, cfg Config) *Keeper {
	t.Helper()
	k := NewKeeper(source, cfg, quiet())
	k.verifier = ring.verifier(t)
	return k
}

// relabelled is the catalogue with a tool that is harmless now, and the signature
// that was for the other: every digest is right.
func relabelled(t testing.TB, c *Catalogue) *Catalogue {
	t.Helper()
	other := Catalogue{Servers: c.Servers, Tools: slices.Clone(c.Tools), Signature: c.Signature}
	other.Tools[0].Effect, other.Tools[0].Data = "read", "public"
	forged, err := NewCatalogue("", other)
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

func grave(server, name string) Tool {
	t := validTool(server, name)
	t.Effect, t.Data = "destructive", "secret"
	return t
}

func TestKeeperTakesOnlyWhatIsSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring(t, "a")
		key := ring.private["a"]
		good := signed(t, mustCatalogue(t, grave("s", "t")), key, Claims{}, time.Now())
		forged := relabelled(t, good)
		source := &scripted{catalogue: forged}
		var log bytes.Buffer
		k := verifying(t, source, ring, Config{})
		k.log = slog.New(slog.NewTextHandler(&log, nil))
		refused := "revision " + forged.Head.Revision + " of the registry is refused: it is not what was signed at " +
			time.Now().UTC().Format(time.RFC3339) + ": sign it again, or bring back what was signed"
		for range 3 {
			if err := k.Refresh(t.Context()); err == nil || err.Error() != refused {
				t.Errorf("forged at the start: %v", err)
			}
		}
		if st := k.Status(); k.Current() != nil || k.Fresh(time.Now()) || st.Ready || !slices.Equal(st.Problems, []string{refused}) || st.Signed != (Signed{}) {
			t.Errorf("forged at the start: %+v", st)
		}
		if n := source.loads.Load(); n != 1 {
			t.Errorf("what is refused was loaded %d times", n)
		}
		source.catalogue = good
		if err := k.Refresh(t.Context()); err != nil || !k.Fresh(time.Now()) {
			t.Fatal(err)
		}
		want := Signed{By: key.String(), At: time.Now().UTC().Truncate(time.Second)}
		if st := k.Status(); !st.Ready || st.Signed != want || len(st.Problems) != 0 {
			t.Errorf("good: %+v", st)
		}
		snapshot := k.Current()
		source.catalogue = forged
		for _, c := range []struct {
			after time.Duration
			fresh bool
		}{{0, true}, {30 * time.Second, true}, {30*time.Second + 1, false}} {
			start := time.Now()
			time.Sleep(c.after)
			if err := k.Refresh(t.Context()); err == nil || k.Fresh(time.Now()) != c.fresh || k.Current() != snapshot {
				t.Errorf("%s: %v, fresh %v, %v", c.after, err, k.Fresh(time.Now()), k.Current())
			}
			if st := k.Status(); st.Ready != c.fresh || st.Stale == c.fresh || len(st.Problems) != 1 {
				t.Errorf("%s: %+v", c.after, st)
			}
			source.catalogue = good
			if err := k.Refresh(t.Context()); err != nil || k.Current() != snapshot || !k.Fresh(time.Now()) {
				t.Errorf("%s, well again: %v, after %s", c.after, err, time.Since(start))
			}
			source.catalogue = forged
		}
		// A quarantine and its end are not for who holds the key.
		for _, q := range [][]Quarantined{{{Server: "s", Tool: "t", Reason: "r"}}, nil} {
			given := *good
			given.Quarantine = q
			c, err := NewCatalogue("", given)
			if err != nil {
				t.Fatal(err)
			}
			source.catalogue = c
			err = k.Refresh(t.Context())
			if _, is := k.Current().Quarantined("s", "t"); err != nil || is != (q != nil) {
				t.Errorf("%v: %v, %v", q, is, err)
			}
		}
		for line, want := range map[string]int{"registry cannot be refreshed": 4, "registry is stale": 1, "registry loaded": 3} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%q logged %d times, want %d", line, got, want)
			}
		}
	})
}

// What was signed before the one in force does not come back by itself.
func TestKeeperRefusesAnOlderSignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring(t, "a")
		key := ring.private["a"]
		start := time.Now()
		old := mustCatalogue(t, validTool("s", "t"))
		source := &scripted{catalogue: signed(t, old, key, Claims{}, start)}
		k := verifying(t, source, ring, Config{})
		refresh := func(c *Catalogue) error {
			source.catalogue = c
			return k.Refresh(t.Context())
		}
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := refresh(signed(t, mustCatalogue(t, grave("s", "t")), key, Claims{}, time.Now())); err != nil {
			t.Fatal(err)
		}
		snapshot := k.Current()
		replayed := signed(t, old, key, Claims{}, start)
		want := "revision " + replayed.Head.Revision + " of the registry is refused: it was signed at " + start.UTC().Format(time.RFC3339) +
			", before the one in force, which was at " + time.Now().UTC().Format(time.RFC3339) + ": sign it again if it is to come back"
		if err := refresh(replayed); err == nil || err.Error() != want || k.Current() != snapshot {
			t.Errorf("replayed: %v", err)
		}
		if err := refresh(signed(t, old, key, Claims{}, time.Now())); err != nil || k.Current() == snapshot {
			t.Errorf("signed again: %v", err)
		}
		// After a restart nobody knows.
		if err := verifying(t, &scripted{catalogue: replayed}, ring, Config{}).Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A signature's end needs no look at the source, and nobody can choose to go on.
func TestKeeperSignatureExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring(t, "a")
		c := mustCatalogue(t, validTool("s", "t"))
		again := func() *Catalogue { return signed(t, c, ring.private["a"], Claims{ExpiresIn: time.Minute}, time.Now()) }
		for _, cfg := range []Config{{}, {InsecureServeStale: true}} {
			source := &scripted{catalogue: again()}
			k := verifying(t, source, ring, cfg)
			if err := k.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			end := k.Status().Signed.Expires
			source.headErr = errors.New("out of reach")
			for _, x := range []struct {
				before time.Duration
				fresh  bool
			}{{50 * time.Second, true}, {1, cfg.InsecureServeStale}, {0, false}, {-time.Hour, false}} {
				time.Sleep(time.Until(end.Add(-x.before)))
				if st := k.Status(); k.Fresh(time.Now()) != x.fresh || st.Ready != x.fresh {
					t.Errorf("%s before the end: %+v", x.before, st)
				}
			}
			if st := k.Status(); !st.Stale || k.Current() == nil {
				t.Errorf("expired: %+v", st)
			}
			source.headErr = nil
			want := "revision " + source.catalogue.Head.Revision + " of the registry is refused: its signature expired at " + end.Format(time.RFC3339) + ": sign it again"
			if err := k.Refresh(t.Context()); err == nil || err.Error() != want || k.Fresh(time.Now()) {
				t.Errorf("expired: %v", err)
			}
			if n := source.loads.Load(); n != 1 {
				t.Errorf("%d loads", n)
			}
			source.catalogue = again()
			if err := k.Refresh(t.Context()); err != nil || !k.Fresh(time.Now()) {
				t.Errorf("signed again: %v", err)
			}
		}
	})
}

func TestKeeperKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newKeyring(t, "old"), newKeyring(t, "new")
		only := func(r *keyring) string { return readText(t, r.path) }
		both := strings.Replace(only(before), `]}`, `,`+strings.TrimPrefix(only(after), `{"keys":[`), 1)
		ring := newKeyring(t, "unused")
		put := func(text string) { write(t, filepath.Dir(ring.path), filepath.Base(ring.path), text) }
		put(only(before))
		c := mustCatalogue(t, validTool("s", "t"))
		source := &scripted{catalogue: signed(t, c, before.private["old"], Claims{}, time.Now())}
		var log bytes.Buffer
		k := verifying(t, source, ring, Config{MaxStaleness: 2 * time.Second})
		k.log = slog.New(slog.NewTextHandler(&log, nil))
		step := func(name, problem string, fresh bool) {
			t.Helper()
			time.Sleep(pollEvery)
			err := k.Refresh(t.Context())
			st := k.Status()
			if problem == "" && (err != nil || len(st.Problems) != 0) || problem != "" && (len(st.Problems) != 1 || !strings.Contains(st.Problems[0], problem)) {
				t.Errorf("%s: %v, problems %q, want %q", name, err, st.Problems, problem)
			}
			if st.Ready != fresh || k.Fresh(time.Now()) != fresh {
				t.Errorf("%s: %+v", name, st)
			}
		}
		step("old key", "", true)
		put(both)
		step("both keys", "", true)
		source.catalogue = signed(t, c, after.private["new"], Claims{}, time.Now())
		step("signed with the new", "", true)
		put(only(after))
		step("new key", "", true)
		source.catalogue = signed(t, c, before.private["old"], Claims{}, time.Now())
		step("signed with the old", `its signature is of the key "old", and `+ring.path+` has "new": sign the catalogue again with a key that is there, or add the key`, true)
		source.catalogue = signed(t, c, after.private["new"], Claims{}, time.Now())
		step("signed with the new again", "", true)
		// A file that is broken or gone takes no key away.
		put(only(after)[:20])
		step("cut off", "registry.verify.keys: "+ring.path+": no JWKS: unexpected end of JSON input", true)
		if err := os.Remove(ring.path); err != nil {
			t.Fatal(err)
		}
		step("gone", "registry.verify.keys: the key cannot be read: open "+ring.path+": no such file or directory", true)
		time.Sleep(time.Hour)
		step("long gone", "registry.verify.keys: ", true)
		put(both)
		step("back", "", true)
		// One that was taken away ends what it signed, though the source stays as it is.
		put(only(before))
		for range 4 {
			step("taken away", `its signature is of the key "new", and `, true)
		}
		step("taken away for max_staleness", `its signature is of the key "new", and `, false)
		if n := source.loads.Load(); n != 4 {
			t.Errorf("%d loads", n)
		}
		for line, want := range map[string]int{"the keys of the registry cannot be read": 1, "the keys of the registry can be read again": 1} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("%q logged %d times, want %d", line, got, want)
			}
		}
	})
}

// Whoever can write Redis relabels a tool there, with an index and parts that fit
// each other, where the gateway looks for the truth's catalogue and where it would
// look for the forged one. Whoever can write the source does so there.
func TestSignedCatalogueFromPoisonedRedis(t *testing.T) {
	server := redisserver.Start(t)
	ring := newKeyring(t, "a")
	good := signed(t, mustCatalogue(t, grave("s", "t"), validTool("u", "t")), ring.private["a"], Claims{}, time.Now())
	forged := relabelled(t, good)
	attacker := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer attacker.Close()
	poison := func() {
		t.Helper()
		k := keys{"gw"}
		index, parts := encoded(t, forged)
		for _, digest := range []string{good.Head.Digest, forged.Head.Digest} {
			if err := attacker.Set(t.Context(), k.index(digest), index, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for n, ref := range forged.parts {
			for _, r := range []reference{ref, good.parts[n]} {
				if err := attacker.Set(t.Context(), k.part(r), parts[n], 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	grave := func(k *Keeper) bool {
		tool, found := k.Current().Lookup("s", "t")
		return found && tool.Effect == "destructive" && tool.Data == "secret"
	}
	source := &scripted{catalogue: good}
	poison()
	cached := cachedOver(t, source, server.Addr)
	k := verifying(t, cached, ring, Config{})
	if err := k.Refresh(t.Context()); err != nil || !grave(k) || !k.Fresh(time.Now()) {
		t.Fatalf("Redis poisoned: %v, %+v", err, k.Status())
	}
	if s := cached.Stats(); s.Rejected == 0 || s.Hits != 0 {
		t.Errorf("Redis poisoned: %+v", s)
	}
	poison()
	source.set(func(s *scripted) { s.catalogue = forged })
	if err := k.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), " is refused: it is not what was signed at ") || !grave(k) {
		t.Errorf("Redis and the source poisoned: %v", err)
	}
	if s := cached.Stats(); s.Hits != 1 { // so it was the signature that told
		t.Errorf("Redis and the source poisoned: %+v", s)
	}
	fresh := verifying(t, cachedOver(t, source, server.Addr), ring, Config{})
	if err := fresh.Refresh(t.Context()); err == nil || fresh.Current() != nil || fresh.Fresh(time.Now()) {
		t.Errorf("Redis and the source poisoned at the start: %v", err)
	}
	source.set(func(s *scripted) { s.catalogue = good })
	for _, k := range []*Keeper{k, fresh} {
		if err := k.Refresh(t.Context()); err != nil || !grave(k) {
			t.Errorf("the truth is well again: %v", err)
		}
	}
}

// People save a catalogue, and sign it a moment later.
func TestSignedDirectory(t *testing.T) {
	ring := newKeyring(t, "a")
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	sign := func() {
		t.Helper()
		if _, _, err := SignFile(dir, ring.private["a"], Claims{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	sign()
	cfg := Config{Path: dir, Verify: &VerifyConfig{Keys: ring.path}}
	k, err := Open(t.Context(), cfg, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	write(t, dir, "a.yaml", catalogueYAML("a", 2, "read"))
	eventually(t, 10*time.Second, "the problem shows", func() bool {
		p := k.Status().Problems
		return len(p) == 1 && strings.Contains(p[0], " is refused: it is not what was signed at ")
	})
	if n := len(k.Current().Tools()); n != 1 || !k.Fresh(time.Now()) {
		t.Errorf("%d tools, %+v", n, k.Status())
	}
	f, err := OpenFile(dir, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sign()
	eventually(t, 10*time.Second, "the signed one is taken", func() bool { return len(k.Current().Tools()) == 2 && len(k.Status().Problems) == 0 })
	if _, err := f.Quarantine(t.Context(), Author{Name: "x"}, Quarantined{Server: "a", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the quarantine is taken unsigned", func() bool {
		_, is := k.Current().Quarantined("a", "tool_00000")
		return is && len(k.Status().Problems) == 0
	})
}

func TestOpenVerifies(t *testing.T) {
	ring, other := newKeyring(t, "a"), newKeyring(t, "a")
	dir := t.TempDir()
	write(t, dir, "a.yaml", catalogueYAML("a", 1, "read"))
	c := load(t, openedFor(t, dir))
	for name, x := range map[string]struct {
		keys string
		sign bool
		want string
	}{
		"signed":      {ring.path, true, ""},
		"another key": {other.path, true, "revision %s of the registry is refused: its signature is not what ES256 and key \"a\" made of it: another key did, or somebody changed it; sign the catalogue again"},
		"not signed":  {ring.path, false, "revision %s of the registry is refused: it is not signed: sign it with regogate registry sign"},
		"no keys":     {filepath.Join(dir, "absent"), true, "registry.verify.keys: the key cannot be read: open " + filepath.Join(dir, "absent") + ": no such file or directory"},
		"no key":      {filepath.Join(dir, "a.yaml"), true, "registry.verify.keys: " + filepath.Join(dir, "a.yaml") + ": want a PEM block or a JWKS; for a secret, name the algorithm, such as HS256"},
	} {
		_ = os.Remove(filepath.Join(dir, "catalogue.sig"))
		revision := c.Head.Revision
		if x.sign {
			s, _, err := SignFile(dir, ring.private["a"], Claims{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			revision = s.Head.Revision
		}
		k, err := Open(t.Context(), Config{Path: dir, Verify: &VerifyConfig{Keys: x.keys}}, nil, quiet())
		says := ""
		if err != nil {
			says = err.Error()
		} else if err := k.Close(); err != nil {
			t.Error(err)
		}
		if want := strings.Replace(x.want, "%s", revision, 1); says != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, says, want)
		}
	}
}

func openedFor(t *testing.T, dir string) *File {
	f := openFile(t, dir)
	t.Cleanup(func() { f.Close() })
	return f
}

// The secret of an HS* key is one only where the configuration says so: a public
// key never is.
func TestVerifierTakesNoPublicKeyForASecret(t *testing.T) {
	dir := t.TempDir()
	_, public := keyfile.EC(t, elliptic.P256())
	write(t, dir, "key", public)
	want := "registry.verify.keys: " + filepath.Join(dir, "key") + `: holds "PUBLIC KEY" in PEM, and HS256 wants a secret`
	if _, err := NewVerifier(VerifyConfig{Keys: filepath.Join(dir, "key"), Algorithm: "HS256"}); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestVerifyConfig(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"{path: c, verify: {keys: k, algorithm: ES256, key_id: a}}", ""},
		{"{path: c, verify: {}}", "f:1: registry.verify.keys: is missing; want a file with a public key in PEM or a JWKS"},
		{"{path: c, verify: ~}", "f:1: registry.verify: has no value; give it one or remove the line"},
		{"{path: c, verify: {keys: k, algorithm: ES265}}", `f:1: registry.verify.algorithm: unknown value "ES265"; did you mean ES256?`},
		{"{path: c, verify: {keys: k, algorithm: none}}", `f:1: registry.verify.algorithm: unknown value "none"; want one of: ES256, ES384, ES512, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512`},
		{"{verify: {keys: k}}", "f:1: registry.verify: the catalogue that comes with the binary is not signed; name yours with path"},
		{"{path: c, verify: {key: k}}", "f:1: registry.verify.key: unknown key; did you mean keys?"},
	} {
		var file struct {
			Registry Config `yaml:"registry"`
		}
		pos, problems := strictyaml.Decode([]byte("registry: "+c.in+"\n"), &file, strictyaml.Options{File: "f"})
		if len(problems) == 0 {
			problems = file.Registry.Validate("registry")
			pos.Locate(problems)
		}
		got := ""
		if err := strictyaml.Err(problems); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", c.in, got, c.want)
		}
	}
}
