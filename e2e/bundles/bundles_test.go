// Package bundles_test has the regogate binary and OPA's own command line, which is
// inside it, make, sign and read each other's bundles of the shipped policies.
package bundles_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/regogate/regogate/e2e/binary"
)

func TestMain(m *testing.M) { os.Exit(binary.Run(m)) }

// run returns what the binary printed, both ways.
func run(t testing.TB, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary.Path(t, "-tags", "opacli"), args...).CombinedOutput()
	return string(out), err
}

func must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatalf("regogate %v: %v\n%s", args, err, out)
	}
	return out
}

// fails wants the command to fail, and to say this.
func fails(t testing.TB, says string, args ...string) {
	t.Helper()
	if out, err := run(t, args...); err == nil || !strings.Contains(out, says) {
		t.Errorf("regogate %v: %v, want a failure with %q:\n%s", args, err, says, out)
	}
}

// policies copies what is shipped: the policy and, apart from it, its tests.
func policies(t testing.TB) (dir, tests string) {
	t.Helper()
	dir, tests = filepath.Join(t.TempDir(), "p"), filepath.Join(t.TempDir(), "t")
	from := filepath.Join("..", "..", "policies")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".rego") && name != "data.json" {
			return err
		}
		to := dir
		if strings.HasSuffix(name, "_test.rego") {
			to = tests
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o755), os.WriteFile(filepath.Join(to, rel), text, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, tests
}

// keyFiles are a private key, its public one, and another's.
type keyFiles struct{ algorithm, private, public, wrong string }

func keys(t testing.TB) []keyFiles {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	var files [2][3]string
	for i := range 2 {
		r, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		e, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		q, err := x509.MarshalPKIXPublicKey(&r.PublicKey)
		files[i][0] = write(fmt.Sprintf("rsa%d.pem", i), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r), nil)
		files[i][1] = write(fmt.Sprintf("rsa%d.pub", i), "PUBLIC KEY", q, err)
		der, err := x509.MarshalECPrivateKey(e)
		files[i][2] = write(fmt.Sprintf("ec%d.pem", i), "EC PRIVATE KEY", der, err)
	}
	secrets := [2]string{filepath.Join(dir, "secret0"), filepath.Join(dir, "secret1")}
	for _, s := range secrets {
		if err := os.WriteFile(s, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []keyFiles{
		{"RS256", files[0][0], files[0][1], files[1][1]},
		{"PS512", files[0][0], files[0][1], files[1][1]},
		{"ES384", files[0][2], files[0][2], files[1][2]},
		{"HS256", secrets[0], secrets[0], secrets[1]},
	}
}

// TestBundlesAreOPAs reads ours with OPA and OPA's with ours, signed and not.
func TestBundlesAreOPAs(t *testing.T) {
	dir, _ := policies(t)
	at := t.TempDir()
	file := func(name string) string { return filepath.Join(at, name) }
	for _, k := range keys(t) {
		t.Run(k.algorithm, func(t *testing.T) {
			ours, theirs, later := file("ours.tar.gz"), file("theirs.tar.gz"), file("later.tar.gz")
			must(t, "bundle", "build", dir, "-o", ours, "--signing-key", k.private, "--signing-alg", k.algorithm, "--key-id", "prod")
			must(t, "opa", "build", "--bundle", dir, "-o", theirs, "--signing-key", k.private, "--signing-alg", k.algorithm)
			must(t, "opa", "build", "--bundle", dir, "-o", later)
			must(t, "bundle", "sign", later, "--signing-key", k.private, "--signing-alg", k.algorithm)
			detached := detached(t, dir, k)
			for name, body := range map[string]string{"ours": ours, "OPA's": theirs, "OPA's, signed by us": later, "signed by opa sign": detached} {
				must(t, "opa", "build", "--bundle", body, "-o", file("out.tar.gz"), "--verification-key", k.public, "--signing-alg", k.algorithm,
					"--signing-key", k.private)
				fails(t, "failed to verify JWT signature", "opa", "build", "--bundle", body, "-o", file("out.tar.gz"), "--verification-key", k.wrong,
					"--signing-alg", k.algorithm, "--signing-key", k.private)
				if out := must(t, "bundle", "verify", body, "--verification-key", k.public, "--alg", k.algorithm); !strings.Contains(out, ": verified, revision ") ||
					!strings.Contains(out, "signed with "+k.algorithm) {
					t.Errorf("%s: %s", name, out)
				}
				fails(t, "failed to verify JWT signature", "bundle", "verify", body, "--verification-key", k.wrong, "--alg", k.algorithm)
				must(t, "opa", "inspect", body)
				must(t, "bundle", "inspect", body)
				must(t, "policy", "check", body)
			}
		})
	}
}

// detached has opa sign write the signature for a bundle, and puts it there.
func detached(t testing.TB, dir string, k keyFiles) string {
	t.Helper()
	at := t.TempDir()
	body, to := filepath.Join(at, "unsigned.tar.gz"), filepath.Join(at, "signed.tar.gz")
	must(t, "bundle", "build", dir, "-o", body)
	must(t, "opa", "sign", "--bundle", body, "--signing-key", k.private, "--signing-alg", k.algorithm, "-o", at)
	text, err := os.ReadFile(filepath.Join(at, ".signatures.json"))
	if err != nil {
		t.Fatal(err)
	}
	add(t, body, to, ".signatures.json", text)
	return to
}

// add copies an archive with one more file.
func add(t testing.TB, from, to, name string, text []byte) {
	t.Helper()
	body, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w, r := tar.NewWriter(z), tar.NewReader(zipped)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = io.Copy(w, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(text)
	}
	if err = errors.Join(err, w.Close(), z.Close(), os.WriteFile(to, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestBundlesDecideAlike asks OPA for everything that the entry package says, by the
// directory, by our bundle and by OPA's with each root.
func TestBundlesDecideAlike(t *testing.T) {
	dir, tests := policies(t)
	at := t.TempDir()
	ours, theirs, whole := filepath.Join(at, "ours.tar.gz"), filepath.Join(at, "theirs.tar.gz"), filepath.Join(at, "whole.tar.gz")
	must(t, "bundle", "build", dir, "-o", ours)
	must(t, "opa", "build", "--bundle", dir, "-o", theirs)
	must(t, "opa", "build", dir, "-o", whole)
	if out := must(t, "bundle", "inspect", whole); !strings.Contains(out, `roots         "", which is everything`) {
		t.Errorf("what opa build makes is shown as\n%s", out)
	}
	ran := must(t, "opa", "test", dir, tests)
	if got := must(t, "opa", "test", ours, tests); got != ran || !strings.HasPrefix(ran, "PASS: ") {
		t.Errorf("opa test says %q of the directory, %q of the bundle", ran, got)
	}
	answers := map[bool]int{}
	for _, role := range []string{"support", "developer", "nobody"} {
		for _, attribute := range []string{"crm", "web"} {
			for _, effect := range []string{"read", "destructive"} {
				input := filepath.Join(at, "input.json")
				text := fmt.Sprintf(`{"method": "tools/call", "claims": {"iss": "https://issuer.example", "sub": "a", "roles": [%q]},
					"tool": {"server": "s", "name": "x", "exposed_name": "s__x", "attributes": [%q], "effect": %q, "data": "internal",
					"reach": "closed", "env": "production", "owner": "o", "registered": true,
					"definition": {"pinned": true, "drifted": false}}}`, role, attribute, effect)
				if err := os.WriteFile(input, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				var want map[string]any
				for i, source := range []string{dir, ours, theirs, whole} {
					out := must(t, "opa", "eval", "--bundle", source, "--input", input, "--format", "raw", "data.mcp.authz")
					var got map[string]any
					if err := json.Unmarshal([]byte(out), &got); err != nil {
						t.Fatal(err, out)
					}
					if i == 0 {
						want = got
						answers[got["allow"] == true]++
					}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("of %s %s says %v, the directory %v", text, filepath.Base(source), got, want)
					}
				}
			}
		}
	}
	if answers[true] == 0 || answers[false] == 0 {
		t.Errorf("the policy answered %v: want both", answers)
	}
}

// TestGatewayTakesBundles starts no gateway: its check waits until bundles are in
// force, or says why not.
func TestGatewayTakesBundles(t *testing.T) {
	dir, _ := policies(t)
	at := t.TempDir()
	k := keys(t)[0]
	body := filepath.Join(at, "b.tar.gz")
	server := httptest.NewServer(http.FileServer(http.Dir(at)))
	t.Cleanup(server.Close) // once the parallel tests have ended
	config := func(t testing.TB, public, scope string) string {
		key, err := os.ReadFile(public)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{
			"listen": "127.0.0.1:0", "auth": map[string]any{"insecure_anonymous": map[string]any{"claims": map[string]any{"sub": "a"}}},
			"servers": map[string]any{},
			"policy": map[string]any{"opa": map[string]any{
				"services": map[string]any{"files": map[string]string{"url": server.URL}},
				"bundles": map[string]any{"authz": map[string]any{
					"service": "files", "resource": "b.tar.gz", "signing": map[string]string{"keyid": "prod", "scope": scope},
				}},
				"keys": map[string]any{"prod": map[string]string{"key": string(key), "algorithm": k.algorithm}},
			}},
		})
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	must(t, "bundle", "build", dir, "-o", body, "--signing-key", k.private, "--key-id", "prod", "--scope", "s", "--expires-in", "1h")
	for name, c := range map[string]struct{ public, scope, problem string }{
		"taken":         {k.public, "s", ""},
		"another key":   {k.wrong, "s", "failed to verify JWT signature"},
		"another scope": {k.public, "t", "scope mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a refusal is waited for
			path := config(t, c.public, c.scope)
			if c.problem != "" {
				fails(t, c.problem, "serve", "--check", "-c", path)
			} else if out := must(t, "serve", "--check", "-c", path); !strings.HasPrefix(out, "all is well: ") {
				t.Error(out)
			}
		})
	}
}
