package registry

import (
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"strings"
)

// The signature of a catalogue is in a file beside it: catalogue.sig in its
// directory, or what the one file is called with .sig after it.
const (
	signatureName = "catalogue.sig"
	signatureExt  = ".sig"
)

// ReadToSign reads the catalogue at a path, as OpenFile does but without any
// signature, and returns the path of the file that its signature belongs into. It
// fails with a line for every problem.
func ReadToSign(name string) (c *Catalogue, signaturePath string, err error) {
	f, err := at(name, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, "", err
	}
	signaturePath = path.Join(f.dir, f.sig)
	f.sig = ""
	if err := f.open(); err != nil {
		return nil, "", err
	}
	return f.current, signaturePath, nil
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
