package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	signing "github.com/regogate/regogate/bundles/keys"
)

// The signature of a catalogue is in a file beside it: catalogue.sig in its
// directory, or what the one file is called with .sig after it.
const (
	signatureName = "catalogue.sig"
	signatureExt  = ".sig"
)

// SignFile signs the catalogue at a path, a file or a directory, as it is now, and
// puts the signature beside it, whole or not at all. It returns the catalogue with
// it, and the path of the signature. Commands that change the directory wait
// meanwhile. The error has a line for every problem.
func SignFile(name string, key *signing.Key, claims Claims, now time.Time) (c *Catalogue, path string, err error) {
	f, err := at(name, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, "", err
	}
	if f.root != "" {
		unlock, err := f.lock()
		if err != nil {
			return nil, "", err
		}
		defer unlock()
	}
	path = filepath.Join(filepath.FromSlash(f.dir), f.sig)
	f.sig = "" // what is there does not matter
	if err := f.open(); err != nil {
		return nil, "", err
	}
	signature, err := Sign(f.current, key, claims, now)
	if err != nil {
		return nil, "", err
	}
	given := *f.current
	given.Signature = signature
	if c, err = NewCatalogue("", given); err != nil {
		return nil, "", err
	}
	if err := replaceFile(path, []byte(signature+"\n")); err != nil {
		return nil, "", fmt.Errorf("write the signature: %w", err)
	}
	return c, path, nil
}

// signature returns what is in the signature's file, which may lack.
func (f *File) signature() (string, error) {
	if f.sig == "" {
		return "", nil
	}
	info, err := fs.Stat(f.fsys, f.sig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	malformed := errors.New("want one line, as regogate registry sign writes it: sign the catalogue again")
	if err == nil && info.Mode().IsRegular() && info.Size() > maxSignature+1 {
		return "", malformed
	}
	text, err := readFile(f.fsys, f.sig)
	if err != nil {
		return "", err
	}
	signature := strings.TrimSuffix(string(text), "\n")
	if signature == "" || !validSignature(signature) {
		return "", malformed
	}
	return signature, nil
}
