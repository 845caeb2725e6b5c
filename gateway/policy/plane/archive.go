package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
)

const (
	maxFiles  = 10_000 // a bundle's entries, directories included
	expansion = 4      // times the largest bundle: what all its files may weigh
)

// DefaultMaxBundle is the largest bundle that is taken, as it is sent, and the
// largest file in one, in bytes, where its configuration has no size_limit_bytes.
const DefaultMaxBundle = 64 << 20

// Inspect fails for what is no bundle, or one that no plane takes whose bundles may
// be of the default size and have files of any. Where a time is given, a signature has to be valid then. Nothing
// is verified or compiled.
func Inspect(body []byte, at time.Time) error {
	if len(body) > DefaultMaxBundle {
		return tooLarge(DefaultMaxBundle)
	}
	_, err := unpack(body, bounds{total: expansion * DefaultMaxBundle, any: true}, at)
	return err
}

// bounds are what unpack holds a bundle to.
type bounds struct {
	file  int64 // the most bytes of one file; 0 for no bound but total
	total int64
	any   bool // wasm, deltas and old Rego pass: it is only to be looked at
}

func tooLarge(limit int64) error {
	return refuse("the bundle is larger than %d bytes, the most that is taken", limit)
}

// archive is what a first look at a bundle's bytes found.
type archive struct {
	modules []bundle.ModuleFile // Path and Raw
}

// unpack looks through a gzipped tar without keeping more than its modules. It
// refuses what OPA would read without a bound, read wrongly or ignore silently.
func unpack(raw []byte, b bounds, now time.Time) (*archive, error) {
	if len(raw) == 0 {
		return nil, refuse("is empty: want a bundle")
	}
	if len(raw) < 2 || raw[0] != 0x1f || raw[1] != 0x8b {
		return nil, refuse("is no bundle: want a gzipped tar archive")
	}
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, refuse("is no bundle: want a gzipped tar archive")
	}
	left := &io.LimitedReader{R: zip, N: b.total + 1}
	entries := tar.NewReader(left)
	found := &archive{}
	seen := map[string]bool{}
	fault := func(err error) error {
		switch {
		case left.N <= 0:
			return fmt.Errorf("the bundle unpacks to more than %d bytes, the most that is taken", b.total)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the bundle is cut off in the middle")
		}
		return fmt.Errorf("the bundle cannot be taken: %w", err)
	}
	for n := 0; ; n++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) && left.N > 0 {
			break
		}
		if err != nil {
			return nil, fault(err)
		}
		if n == maxFiles {
			return nil, fmt.Errorf("the bundle has more than %d entries, the most that are taken", maxFiles)
		}
		if err := admit(h, seen, b); err != nil {
			return nil, err
		}
		if err := found.take(h, entries, b.any, now); err != nil {
			if _, ours := errors.AsType[refusal](err); ours {
				return nil, err
			}
			return nil, fault(err)
		}
	}
	// The checksum comes last: without it a cut-off archive can look whole.
	if _, err := io.Copy(io.Discard, left); err != nil || left.N <= 0 {
		return nil, fault(err)
	}
	return found, nil
}

// refusal is a reason that is complete as it stands.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, a ...any) error { return refusal(fmt.Sprintf(format, a...)) }

// admit judges one entry by its header. A leading slash is how `opa build`
// writes every name; it means the bundle's root, never the file system's.
func admit(h *tar.Header, seen map[string]bool, b bounds) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
	default:
		return refuse("the bundle cannot be taken: %q is a link or a device: only files and directories are taken", h.Name)
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if !utf8.ValidString(h.Name) || strings.ContainsAny(h.Name, "\\\x00") {
		return refuse("the bundle cannot be taken: %q is no clean name", h.Name)
	}
	if strings.HasPrefix(h.Name, "//") || slices.Contains(strings.Split(h.Name, "/"), "..") {
		return refuse("the bundle cannot be taken: %q leads out of the bundle", h.Name)
	}
	if h.Size > b.total {
		return refuse("the bundle unpacks to more than %d bytes, the most that is taken", b.total)
	}
	if b.file > 0 && h.Size > b.file {
		return refuse("the bundle's file %q has %d bytes, which exceeds size_limit_bytes, %d", h.Name, h.Size, b.file)
	}
	if h.Typeflag == tar.TypeDir {
		return nil
	}
	name := path.Clean("/" + h.Name)
	if seen[name] {
		return refuse("the bundle has two files of the name %q: build it anew", strings.TrimPrefix(name, "/"))
	}
	seen[name] = true
	return nil
}

// take reads what has to be looked at before OPA sees the bundle.
func (a *archive) take(h *tar.Header, r io.Reader, any bool, now time.Time) error {
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if any && !bundle.IsSignaturesFile(name) {
		return nil
	}
	switch base := path.Base(name); {
	case base == "patch.json":
		return refuse("a delta bundle (patch.json) is not taken: it cannot be signed or judged as a whole; serve full bundles")
	case base == bundle.WasmFile, base == bundle.PlanFile, base == bundle.PlanProtoFile:
		return refuse("the bundle holds %q: compiled policy never decides here; build the bundle with `-t rego`", name)
	case strings.HasSuffix(name, bundle.ManifestProtoExt):
		return refuse("the bundle holds %q: write the manifest as JSON, named .manifest", name)
	case strings.HasSuffix(name, bundle.ManifestExt):
		return manifest(r)
	case bundle.IsSignaturesFile(name):
		return signatures(r, now)
	case base == "data.json":
		raw, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		var any json.RawMessage
		if err := json.Unmarshal(raw, &any); err != nil {
			return refuse("%s: not JSON: %v", name, err)
		}
	case strings.HasSuffix(name, bundle.RegoExt):
		raw, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if !utf8.Valid(raw) {
			return refuse("%s: not UTF-8", name)
		}
		a.modules = append(a.modules, bundle.ModuleFile{Path: name, Raw: raw})
	}
	return nil
}

// manifest refuses what a manifest can ask for and this program does not do. A
// manifest that cannot be read is left to OPA, which says where.
func manifest(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var m bundle.Manifest
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	if len(m.WasmResolvers) > 0 {
		return refuse("the bundle's manifest names wasm modules: compiled policy never decides here; build the bundle with `-t rego`")
	}
	old := func(v int) bool { return v != ast.RegoV1.Int() }
	if m.RegoVersion != nil && old(*m.RegoVersion) {
		return refuse("the bundle's manifest says rego_version %d; only 1 is taken: rewrite the policy with `opa fmt --v0-v1 -w`", *m.RegoVersion)
	}
	for name, v := range m.FileRegoVersions {
		if old(v) {
			return refuse("the bundle's manifest says rego_version %d for %q; only 1 is taken: rewrite it with `opa fmt --v0-v1 -w`", v, name)
		}
	}
	return nil
}

// signatures refuses a signature that has run out: OPA reads no exp. The claims
// are believed only to refuse; OPA verifies the same bytes afterwards.
func signatures(r io.Reader, now time.Time) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var s bundle.SignaturesConfig
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	for _, token := range s.Signatures {
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			continue
		}
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			continue
		}
		var c struct {
			Exp *float64 `json:"exp"`
			Nbf *float64 `json:"nbf"`
		}
		if err := json.Unmarshal(claims, &c); err != nil {
			return refuse("the bundle's signature has claims that cannot be read: sign it again")
		}
		if now.IsZero() {
			continue
		}
		at := float64(now.Unix())
		if c.Exp != nil && at >= *c.Exp {
			return refuse("the bundle cannot be taken: the signature expired at %s: sign the bundle anew", moment(*c.Exp))
		}
		if c.Nbf != nil && at < *c.Nbf {
			return refuse("the bundle's signature is valid only from %s", moment(*c.Nbf))
		}
	}
	return nil
}

func moment(seconds float64) string {
	return time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
}

// read verifies and parses a bundle's bytes as OPA's downloader does, and turns
// a panic into an error. An error means that OPA must not see the bytes.
func (s *source) read(raw []byte, etag string, now time.Time) (b *bundle.Bundle, err error) {
	defer caught(&err, "reading the bundle")
	a, err := unpack(raw, bounds{file: s.limit, total: expansion * s.limit}, now)
	if err != nil {
		return nil, err
	}
	// OPA parses modules on goroutines of its own, where a panic would end the
	// process. What is wrong with one it says better, so errors are left to it.
	for _, m := range a.modules {
		_, _ = ast.ParseModuleWithOpts(m.Path, string(m.Raw), ast.ParserOptions{RegoVersion: ast.RegoV1})
	}
	loader := bundle.NewTarballLoaderWithBaseURL(bytes.NewReader(raw), "").WithSizeLimitBytes(s.limit)
	read, err := bundle.NewCustomReader(loader).
		WithRegoVersion(ast.RegoV1).
		WithBundleVerificationConfig(s.verify).
		WithBundleEtag(etag).
		WithLazyLoadingMode(!s.discovery).
		WithBundleName(s.name).
		WithSizeLimitBytes(s.limit).
		WithBundlePersistence(s.persist).
		Read()
	if err != nil {
		return nil, err
	}
	return &read, nil
}

func caught(err *error, doing string) {
	if r := recover(); r != nil {
		*err = panicked{fmt.Sprintf("%s failed: OPA gave up with %v", doing, r)}
	}
}

// panicked marks an error that was a panic: doing the same again would panic.
type panicked struct{ text string }

func (p panicked) Error() string { return p.text }
