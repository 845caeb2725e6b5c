package depot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// parcel is a publication that is ready to be sent. Nobody modifies it.
type parcel struct {
	body      segments
	etag      string
	changing  bool
	fault     string
	mediaType string
}

// known reports whether a request says that it has this already.
func (p *parcel) known(ifNoneMatch string) bool {
	if p.etag == "" || p.fault != "" && p.fault != Early {
		return false
	}
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == strings.TrimPrefix(p.etag, "W/") {
			return true
		}
	}
	return false
}

func (p *parcel) contentType(long bool) string {
	switch {
	case p.mediaType != "":
		return p.mediaType
	case long:
		return bundleType
	}
	return "application/gzip"
}

// wrap makes a parcel of a publication.
func (d *Depot) wrap(p Publication) (*parcel, error) {
	out := &parcel{fault: p.Fault, mediaType: p.Type, etag: p.ETag}
	if p.Raw != "" {
		out.body = segments{{[]byte(p.Raw), 1}}
	} else {
		var err error
		if out.body, err = d.archive(p); err != nil {
			return nil, err
		}
	}
	switch p.ETag {
	case "":
		h := sha256.New()
		for _, s := range out.body {
			h.Write(s.bytes)
		}
		out.etag = `"` + hex.EncodeToString(h.Sum(nil)[:8]) + `"`
	case "none":
		out.etag = ""
	case "changing":
		out.etag, out.changing = "", true
	}
	return out, nil
}

// archive packs a publication up.
func (d *Depot) archive(p Publication) (segments, error) {
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	if p.Sign != nil {
		signed, err := d.keys.sign(p.Sign, files)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, p.Sign.Change)
		maps.Copy(files, p.Sign.Add)
		files[".signatures.json"] = signed
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := (Entry{Name: "/" + name, Text: files[name]}).write(archive); err != nil {
			return nil, err
		}
	}
	for _, e := range p.Entries {
		if err := e.write(archive); err != nil {
			return nil, err
		}
	}
	for i := range p.Many {
		e := Entry{Name: fmt.Sprintf("/mcp/many/m%d/data.json", i), Text: "{}"}
		if err := e.write(archive); err != nil {
			return nil, err
		}
	}
	if p.Bomb > 0 {
		return bomb(archive, zipped, &out, int64(p.Bomb))
	}
	err = errors.Join(archive.Close(), zipped.Close())
	return segments{{out.Bytes(), 1}}, err
}

// files returns what a signature covers.
func (p *Publication) files() (map[string]string, error) {
	files := map[string]string{}
	maps.Copy(files, p.Files)
	if p.Manifest == "none" {
		return files, nil
	}
	text := p.Manifest
	if text == "" {
		m := map[string]any{"revision": p.Revision, "roots": p.Roots}
		if p.Roots == nil {
			m["roots"] = []string{"mcp"}
		}
		if p.RegoVersion != nil {
			m["rego_version"] = *p.RegoVersion
		}
		raw, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	files[".manifest"] = text
	return files, nil
}

func (e Entry) write(archive *tar.Writer) error {
	h := &tar.Header{Name: e.Name, Linkname: e.To, Mode: 0o600}
	switch e.Type {
	case "", "file":
		h.Typeflag, h.Size = tar.TypeReg, int64(len(e.Text))
	case "dir":
		h.Typeflag = tar.TypeDir
	case "symlink":
		h.Typeflag = tar.TypeSymlink
	case "link":
		h.Typeflag = tar.TypeLink
	case "device":
		h.Typeflag = tar.TypeChar
	default:
		return fmt.Errorf("entry %s: %q is none of file, dir, symlink, link and device", e.Name, e.Type)
	}
	if err := archive.WriteHeader(h); err != nil {
		return fmt.Errorf("entry %s: %w", e.Name, err)
	}
	_, err := io.WriteString(archive, e.Text)
	return err
}

// block is what one piece of a bomb unpacks to.
const block = 16 << 20

// bomb ends an archive with a file of size zero bytes. gzip lets streams follow
// one another, so the same compressed zeros are sent again and again.
func bomb(archive *tar.Writer, zipped *gzip.Writer, head *bytes.Buffer, size int64) (segments, error) {
	if size%block != 0 {
		return nil, fmt.Errorf("bomb: %d is no multiple of %d", size, block)
	}
	h := &tar.Header{Name: "/mcp/bomb/data.json", Typeflag: tar.TypeReg, Size: size, Mode: 0o600}
	if err := errors.Join(archive.WriteHeader(h), zipped.Close()); err != nil {
		return nil, err
	}
	zeros, err := compress(make([]byte, block))
	if err != nil {
		return nil, err
	}
	end, err := compress(make([]byte, 1024)) // of the archive
	return segments{{head.Bytes(), 1}, {zeros, size / block}, {end, 1}}, err
}

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = zipped.Write(data)
	err = errors.Join(err, zipped.Close())
	return out.Bytes(), err
}

// segments is a body made of pieces, each of which comes so many times.
type segments []segment

type segment struct {
	bytes []byte
	times int64
}

func (s segments) size() (n int64) {
	for _, part := range s {
		n += int64(len(part.bytes)) * part.times
	}
	return n
}

// WriteTo writes all pieces.
func (s segments) WriteTo(w io.Writer) (n int64, err error) {
	for _, part := range s {
		for range part.times {
			m, err := w.Write(part.bytes)
			if n += int64(m); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// first is the first n bytes of the first piece.
func (s segments) first(n int64) segments {
	if len(s) == 0 {
		return nil
	}
	return segments{{s[0].bytes[:min(n, int64(len(s[0].bytes)))], 1}}
}
