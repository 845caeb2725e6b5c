package bundles

import (
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"

	"github.com/regogate/regogate/bundles/keys"
)

// Info is what a bundle says of itself, and holds. Nothing of it is verified by
// having been read.
type Info struct {
	Kind        string      `json:"kind"` // snapshot or delta
	Revision    string      `json:"revision"`
	Roots       []string    `json:"roots"`
	RegoVersion *int        `json:"rego_version,omitempty"`
	Entrypoints []string    `json:"entrypoints,omitempty"`
	Packages    []string    `json:"packages,omitempty"`
	Files       []FileInfo  `json:"files"`
	Size        int         `json:"size"`     // bytes, as it is sent
	Unpacked    int         `json:"unpacked"` // bytes of all files
	Wasm        bool        `json:"wasm,omitempty"`
	Signatures  []Signature `json:"signatures,omitempty"`
	Problem     string      `json:"problem,omitempty"` // why OPA does not read it
}

// FileInfo is one file of a bundle.
type FileInfo struct {
	Name string `json:"name"`
	Size int    `json:"size"` // bytes, unpacked
}

// Signature is what a signature says of itself.
type Signature struct {
	Algorithm string    `json:"algorithm"`
	KeyID     string    `json:"key_id,omitempty"`
	Scope     string    `json:"scope,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
	Files     int       `json:"files"` // that it covers
}

// Inspect reads a bundle, whoever made it. The signature is not verified. Of one
// that OPA does not read, Problem says why, and the rest what can be seen. An error
// is for what is no bundle at all, or one that no gateway takes.
func Inspect(body []byte) (*Info, error) {
	files, err := unpack(body, time.Time{})
	if err != nil {
		return nil, err
	}
	b, err := read(body, nil)
	if err != nil {
		info := describe(glance(files), files, len(body))
		info.Problem = err.Error()
		return info, nil
	}
	return describe(b, files, len(body)), nil
}

// glance takes from the files what is plain to see.
func glance(files []file) *bundle.Bundle {
	b := &bundle.Bundle{}
	for _, f := range files {
		switch base := path.Base(f.name); {
		case base == bundle.ManifestExt:
			var m bundle.Manifest
			if json.Unmarshal(f.body, &m) == nil {
				b.Manifest = m
			}
		case base == bundle.WasmFile:
			b.WasmModules = append(b.WasmModules, bundle.WasmModuleFile{Path: f.name})
		case strings.HasSuffix(base, bundle.RegoExt):
			for _, v := range []ast.RegoVersion{ast.RegoV1, ast.RegoV0} {
				if m, err := ast.ParseModuleWithOpts(f.name, string(f.body), ast.ParserOptions{RegoVersion: v}); err == nil {
					b.Modules = append(b.Modules, bundle.ModuleFile{Path: f.name, Parsed: m})
					break
				}
			}
		}
	}
	return b
}

func describe(b *bundle.Bundle, files []file, size int) *Info {
	info := &Info{
		Kind: bundle.SnapshotBundleType, Revision: b.Manifest.Revision, RegoVersion: b.Manifest.RegoVersion,
		Size: size, Wasm: len(b.WasmModules) > 0, Roots: []string{}, Files: []FileInfo{},
	}
	if isDelta(files) {
		info.Kind = bundle.DeltaBundleType
	}
	for _, f := range files {
		info.Files = append(info.Files, FileInfo{f.covered(), len(f.body)})
		info.Unpacked += len(f.body)
	}
	if b.Manifest.Roots != nil {
		info.Roots = *b.Manifest.Roots
	}
	info.Entrypoints = declared(b)
	for _, m := range b.Modules {
		if p := place(m.Parsed); !slices.Contains(info.Packages, p) {
			info.Packages = append(info.Packages, p)
		}
	}
	slices.Sort(info.Packages)
	for _, token := range signatures(files) {
		info.Signatures = append(info.Signatures, signature(token))
	}
	return info
}

// declared are the entry points that the manifest names, or has compiled to wasm.
func declared(b *bundle.Bundle) (entries []string) {
	if list, ok := b.Manifest.Metadata["entrypoints"].([]any); ok {
		for _, e := range list {
			if text, ok := e.(string); ok {
				entries = append(entries, text)
			}
		}
	}
	for _, w := range b.Manifest.WasmResolvers {
		if !slices.Contains(entries, w.Entrypoint) {
			entries = append(entries, w.Entrypoint)
		}
	}
	return entries
}

// made is how the signature says that it was made.
func (s Signature) made() string {
	return (&keys.Key{ID: s.KeyID, Algorithm: s.Algorithm}).String()
}

// signature reads a JWT without verifying it.
func signature(token string) (s Signature) {
	var header struct {
		Alg string `json:"alg"`
		Kid string `json:"kid"`
	}
	var says struct {
		Files []json.RawMessage `json:"files"`
		KeyID string            `json:"keyid"`
		Scope string            `json:"scope"`
		Exp   float64           `json:"exp"`
	}
	parts := strings.Split(token, ".")
	for i, into := range []any{&header, &says} {
		if i < len(parts) {
			raw, err := base64.RawURLEncoding.DecodeString(parts[i])
			if err != nil || json.Unmarshal(raw, into) != nil {
				return Signature{Algorithm: "unreadable"}
			}
		}
	}
	s = Signature{Algorithm: header.Alg, KeyID: header.Kid, Scope: says.Scope, Files: len(says.Files)}
	if s.KeyID == "" {
		s.KeyID = says.KeyID
	}
	if says.Exp != 0 {
		s.Expires = time.Unix(int64(says.Exp), 0).UTC()
	}
	return s
}
