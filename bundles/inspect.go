package bundles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
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
	Size        int         `json:"size"` // bytes, as it is sent
	Wasm        bool        `json:"wasm,omitempty"`
	Signatures  []Signature `json:"signatures,omitempty"`
}

// FileInfo is one file of a bundle.
type FileInfo struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes, unpacked
}

// Signature is what a signature says of itself.
type Signature struct {
	Algorithm string    `json:"algorithm"`
	KeyID     string    `json:"key_id,omitempty"`
	Scope     string    `json:"scope,omitempty"`
	Expires   time.Time `json:"expires,omitzero"`
	Files     int       `json:"files"` // that it covers
}

// Inspect reads a bundle, whoever made it. The signature is not verified.
func Inspect(body []byte) (*Info, error) {
	b, err := read(body, nil, time.Time{})
	if err != nil {
		return nil, err
	}
	return describe(b, body), nil
}

func describe(b *bundle.Bundle, body []byte) *Info {
	info := &Info{
		Kind: b.Type(), Revision: b.Manifest.Revision, RegoVersion: b.Manifest.RegoVersion,
		Size: len(body), Wasm: len(b.WasmModules) > 0 || len(b.Wasm) > 0,
	}
	var tokens []string
	info.Files, tokens = unpack(body)
	if b.Manifest.Roots != nil {
		info.Roots = *b.Manifest.Roots
	}
	if list, ok := b.Manifest.Metadata["entrypoints"].([]any); ok {
		for _, e := range list {
			if text, ok := e.(string); ok {
				info.Entrypoints = append(info.Entrypoints, text)
			}
		}
	}
	for _, m := range b.Modules {
		if p := place(m.Parsed); !slices.Contains(info.Packages, p) {
			info.Packages = append(info.Packages, p)
		}
	}
	slices.Sort(info.Packages)
	for _, token := range tokens {
		info.Signatures = append(info.Signatures, signature(token))
	}
	return info
}

// unpack lists what the archive holds, which has been read before, and finds the
// signatures, which OPA's reader leaves out where it does not verify them.
func unpack(body []byte) (list []FileInfo, tokens []string) {
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, nil
	}
	archive := tar.NewReader(zipped)
	for {
		h, err := archive.Next()
		if err != nil {
			return list, tokens
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name := strings.TrimPrefix(h.Name, "/")
		list = append(list, FileInfo{name, h.Size})
		if name == "."+bundle.SignaturesFile {
			var signed bundle.SignaturesConfig
			if json.NewDecoder(archive).Decode(&signed) == nil {
				tokens = signed.Signatures
			}
		}
	}
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
		Exp   int64             `json:"exp"`
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
		s.Expires = time.Unix(says.Exp, 0).UTC()
	}
	return s
}
