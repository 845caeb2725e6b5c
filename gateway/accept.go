package gateway

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// accepts says which of the two answer types the client takes. No Accept
// header means JSON only: a client that wants a stream says so.
func accepts(h http.Header) (json, sse bool) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return true, false
	}
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(item))
		if err != nil {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil && q == 0 {
			continue
		}
		json = json || kind == "*/*" || kind == "application/*" || kind == typeJSON
		sse = sse || kind == "*/*" || kind == "text/*" || kind == typeSSE
	}
	return json, sse
}

// jsonBody reports whether the request says that its body is plain JSON in
// UTF-8. Anything else, a missing type included, could come from a web page
// without a pre-flight.
func jsonBody(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return false
	}
	kind, params, err := mime.ParseMediaType(types[0])
	if err != nil || kind != typeJSON {
		return false
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	encoding := h.Get("Content-Encoding")
	return encoding == "" || strings.EqualFold(encoding, "identity")
}
