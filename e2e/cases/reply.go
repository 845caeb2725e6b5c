package cases

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/regogate/regogate/gateway/mcp"
)

// replyTo is how the answer to a request is written.
func (s *script) replyTo(m *mcp.Message) Reply {
	plain := Reply{Type: "application/json"}
	if m.Method == mcp.MethodToolsCall {
		if t, ok := s.tool(calledTool(m)); ok && t.Reply != nil {
			return *t.Reply
		}
	}
	if r, ok := s.manners().Replies[m.Method]; ok {
		return r
	}
	return plain
}

// write answers the request with this id. It ends early when the client leaves.
func (p Reply) write(w http.ResponseWriter, r *http.Request, id, answer string) {
	if p.Type == "" {
		p.Type = "text/event-stream"
	}
	if len(p.Chunks) == 0 {
		p.Chunks = []string{"$ANSWER"}
		if strings.HasPrefix(p.Type, "text/event-stream") {
			p.Chunks = []string{"data: $ANSWER\n\n"}
		}
	}
	if p.Encoding == "asked" {
		p.Encoding = taken(r.Header.Get("Accept-Encoding"))
	}
	w.Header().Set("Content-Type", p.Type)
	if p.Encoding != "" {
		w.Header().Set("Content-Encoding", p.Encoding)
	}
	w.WriteHeader(max(p.Status, http.StatusOK))
	out := &chunked{w: w, flush: http.NewResponseController(w).Flush}
	if strings.HasSuffix(p.Encoding, "gzip") {
		out.zip = gzip.NewWriter(w)
	}
	for i, chunk := range p.Chunks {
		if i > 0 && gone(r, p.Pause) {
			return
		}
		out.write(fill(chunk, id, answer))
	}
	if p.Open {
		<-r.Context().Done()
		return
	}
	out.close(int64(p.Fill))
}

// fill makes the bytes of one write.
func fill(chunk, id, answer string) []byte {
	var out []byte
	for _, r := range chunk {
		out = append(out, byte(r))
	}
	out = bytes.ReplaceAll(out, []byte("$ID"), []byte(id))
	return bytes.ReplaceAll(out, []byte("$ANSWER"), []byte(answer))
}

// gone reports whether the client leaves within d.
func gone(r *http.Request, d time.Duration) bool {
	return wait(r, nil, d)
}

// taken is the encoding that a server would choose which knows them all.
func taken(accept string) string {
	for _, encoding := range []string{"zstd", "br", "gzip"} {
		if strings.Contains(accept, encoding) {
			return encoding
		}
	}
	return ""
}

// chunked sends each write at once. Errors mean that the client has gone.
type chunked struct {
	w     io.Writer
	flush func() error
	zip   *gzip.Writer // nil writes plainly
}

func (c *chunked) write(data []byte) {
	if c.zip == nil {
		_, _ = c.w.Write(data)
	} else {
		_, _ = c.zip.Write(data)
		_ = c.zip.Flush()
	}
	_ = c.flush()
}

// close ends the body, with so much white space before its end. Compressed, it
// is one block again and again: gzip texts may follow one another.
func (c *chunked) close(filler int64) {
	block := bytes.Repeat([]byte(" "), 1<<20)
	if c.zip != nil {
		_ = c.zip.Close()
		var one bytes.Buffer
		zip := gzip.NewWriter(&one)
		_, _ = zip.Write(block)
		_ = zip.Close()
		block = one.Bytes()
	}
	for ; filler > 0; filler -= 1 << 20 {
		if _, err := c.w.Write(block); err != nil {
			return
		}
	}
}
