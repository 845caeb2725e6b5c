package plane

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/bundle"
)

// Bounds of what a bundle holds.
const (
	expansion  = 4 // times the largest bundle: what all files may weigh
	maxEntries = 10_000
)

// Inspect fails for what is no bundle, or one that no plane with the default bounds
// takes. Where a time is given, a signature that has expired by then is one.
func Inspect(body []byte, at time.Time) error {
	if len(body) > DefaultMaxBundle {
		return tooLarge(DefaultMaxBundle)
	}
	return inspect(context.Background(), body, "", expansion*DefaultMaxBundle, at)
}

// inspect looks a bundle through before OPA does, and fails for what is none, for
// what would take too much memory, and for names that a careless reader could be
// led astray by. It never holds more than a buffer.
func inspect(ctx context.Context, body []byte, contentType string, limit int64, at time.Time) error {
	if len(body) == 0 {
		return errors.New("is empty: want a bundle")
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		if contentType != "" {
			return fmt.Errorf("the answer is no bundle (Content-Type %q): want a gzipped tar archive; is this the bundle's URL, and is it open to this service?",
				shorten(contentType))
		}
		return errors.New("is no bundle: want a gzipped tar archive")
	}
	bounded := &io.LimitedReader{R: zipped, N: limit + 1}
	archive, entries := tar.NewReader(bounded), 0
	for {
		h, err := archive.Next()
		if bounded.N == 0 {
			return fmt.Errorf("the bundle unpacks to more than %d bytes, the most that is taken", limit)
		}
		if errors.Is(err, io.EOF) {
			return drain(bounded, limit)
		}
		if err == nil {
			err = sound(h)
		}
		if err == nil && path.Base(h.Name) == "."+bundle.SignaturesFile {
			err = unexpired(archive, at)
		}
		if err != nil {
			return broken(err)
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("the bundle has more than %d entries, the most that are taken", maxEntries)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// maxSignatures bounds the file that holds them.
const maxSignatures = 8 << 20

// unexpired refuses signatures whose time is over, which OPA takes. Whether they
// are anybody's is for OPA to verify.
func unexpired(file io.Reader, at time.Time) error {
	var signed bundle.SignaturesConfig
	if at.IsZero() || json.NewDecoder(io.LimitReader(file, maxSignatures)).Decode(&signed) != nil {
		return nil // OPA says what is wrong with them
	}
	for _, token := range signed.Signatures {
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			continue
		}
		var claims struct {
			Exp float64 `json:"exp"`
		}
		raw, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Exp == 0 {
			continue
		}
		if end := time.Unix(int64(claims.Exp), 0); !at.Before(end) {
			return fmt.Errorf("the signature expired at %s: sign the bundle anew", end.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// drain reads what follows the archive, with gzip's checksum at its end.
func drain(rest *io.LimitedReader, limit int64) error {
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return broken(err)
	}
	if rest.N == 0 {
		return fmt.Errorf("the bundle unpacks to more than %d bytes, the most that is taken", limit)
	}
	return nil
}

func broken(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the bundle is cut off in the middle")
	}
	return fmt.Errorf("the bundle cannot be taken: %w", err)
}

// sound refuses what no bundle needs.
func sound(h *tar.Header) error {
	switch {
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeXGlobalHeader:
		return fmt.Errorf("%q is a link or a device: only files and directories are taken", shorten(h.Name))
	case strings.Contains(h.Name, `\`), strings.ContainsRune(h.Name, 0):
		return fmt.Errorf("%q is no clean name", shorten(h.Name))
	}
	// Bundles name their files from the root or from where they are, both of which
	// mean the bundle itself.
	if inside := strings.TrimPrefix(h.Name, "/"); strings.HasPrefix(inside, "/") || escapes(inside) {
		return fmt.Errorf("%q leads out of the bundle", shorten(h.Name))
	}
	return nil
}

func escapes(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return true
		}
	}
	return path.IsAbs(name)
}

// shorten keeps what a server says from filling a log.
func shorten(s string) string { return s[:min(len(s), 100)] }
