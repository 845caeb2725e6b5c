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
	j, s := weights(h)
	return j.q > 0, s.q > 0
}

// prefersStream reports whether a client would rather have events: they weigh
// more, or as much and are named first.
func prefersStream(h http.Header) bool {
	j, s := weights(h)
	return s.q > j.q || s.q > 0 && s.q == j.q && s.at < j.at
}

// weight is how much a client wants a type, and where it says so.
type weight struct {
	q  float64
	at int
}

func weights(h http.Header) (json, sse weight) {
	values := h.Values("Accept")
	if len(values) == 0 {
		return weight{q: 1}, weight{}
	}
	at := 0
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		at++
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(item))
		if err != nil {
			continue
		}
		q := 1.0
		if given, err := strconv.ParseFloat(params["q"], 64); err == nil {
			q = given
		}
		if kind == "*/*" || kind == "application/*" || kind == typeJSON {
			json = json.or(weight{q, at})
		}
		if kind == "*/*" || kind == "text/*" || kind == typeSSE {
			sse = sse.or(weight{q, at})
		}
	}
	return json, sse
}

func (w weight) or(other weight) weight {
	if other.q > w.q {
		return other
	}
	return w
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
