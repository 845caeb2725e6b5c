package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// readLines calls each for every line of r, without its line ending, until r
// ends. Of a line longer than limit it passes the beginning, with cut set, and
// skips the rest. A last line without an ending counts. The line belongs to
// each. It returns nil at the end of r and else the error of reading.
func readLines(r io.Reader, limit int, each func(line []byte, cut bool)) error {
	buf := bufio.NewReaderSize(r, 32<<10)
	var line []byte
	cut, begun := false, false
	flush := func() {
		if begun {
			each(bytes.TrimSuffix(line, []byte("\r")), cut)
		}
		line, cut, begun = nil, false, false
	}
	for {
		part, err := buf.ReadSlice('\n')
		ended := len(part) > 0 && part[len(part)-1] == '\n'
		if ended {
			part = part[:len(part)-1]
		}
		begun = begun || ended || len(part) > 0
		if room := limit - len(line); len(part) > room {
			part, cut = part[:room], true
		}
		line = append(line, part...)
		switch {
		case ended:
			flush()
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF:
			flush()
			return nil
		case err != nil:
			flush()
			return err
		}
	}
}
