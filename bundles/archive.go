package bundles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"

	"github.com/regogate/regogate/gateway/policy/plane"
)

// MaxSize is the largest bundle that is read or made, in bytes as it is sent. It is
// what gateways take.
const MaxSize = plane.DefaultMaxBundle

// file is one file of a bundle, by the name that the archive has for it.
type file struct {
	name string
	body []byte
}

// covered is the name that signatures have for the file.
func (f file) covered() string { return strings.TrimPrefix(f.name, "/") }

// unpack returns the files of a bundle in its order. It fails for what is no
// bundle, for one that is larger than gateways take or could lead a reader astray,
// and, where a time is given, for one whose signature has expired by then.
func unpack(body []byte, at time.Time) ([]file, error) {
	if err := plane.Inspect(body, at); err != nil {
		return nil, err
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	archive := tar.NewReader(zipped)
	var files []file
	seen := map[string]bool{}
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		// Readers differ in which of two they take.
		place := path.Clean("/" + h.Name)
		if seen[place] {
			return nil, fmt.Errorf("the bundle has two files of the name %q: build it anew", place[1:])
		}
		seen[place] = true
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		files = append(files, file{h.Name, content})
	}
}

// pack is the same for the same files. Nothing of the time or the machine is in it.
func pack(files []file) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o600, Typeflag: tar.TypeReg, Size: int64(len(f.body))}
		if err := archive.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write the bundle: %w", err)
		}
		if _, err := archive.Write(f.body); err != nil {
			return nil, fmt.Errorf("write the bundle: %w", err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("write the bundle: %w", err)
	}
	return out.Bytes(), nil
}

// read has OPA read a bundle that unpack has taken. With keys it is verified.
func read(body []byte, keys *bundle.VerificationConfig) (*bundle.Bundle, error) {
	r := bundle.NewReader(bytes.NewReader(body)).WithRegoVersion(ast.RegoV1).WithSkipBundleVerification(keys == nil)
	if keys != nil {
		r = r.WithBundleVerificationConfig(keys)
	}
	b, err := r.Read()
	if err != nil {
		return nil, errors.New(oneLine(err))
	}
	return &b, nil
}

// signatures are the tokens in a bundle, with the file that holds them.
func signatures(files []file) []string {
	for _, f := range files {
		if bundle.IsSignaturesFile(f.name) {
			var signed bundle.SignaturesConfig
			if json.NewDecoder(bytes.NewReader(f.body)).Decode(&signed) == nil { // as OPA does
				return signed.Signatures
			}
		}
	}
	return nil
}

func isDelta(files []file) bool {
	for _, f := range files {
		if path.Base(f.name) == "patch.json" {
			return true
		}
	}
	return false
}

// oneLine is what OPA says, without the source that it shows.
func oneLine(err error) string {
	var list ast.Errors
	if !errors.As(err, &list) {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	said := make([]string, len(list))
	for i, e := range list {
		said[i] = strings.Join(strings.Fields(e.Message), " ")
		if e.Location != nil {
			said[i] = fmt.Sprintf("%s:%d: %s", strings.TrimPrefix(e.Location.File, "/"), e.Location.Row, said[i])
		}
	}
	return strings.Join(said, "; ")
}
