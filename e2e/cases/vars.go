package cases

import (
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// look returns what a <<NAME>> stands for in this world, with vars first. README
// lists the names.
func (w *world) look(vars map[string]string) lookup {
	return func(name string) (string, error) {
		if v, ok := vars[name]; ok {
			return v, nil
		}
		word, rest, _ := strings.Cut(name, " ")
		switch word {
		case "dir":
			return w.dir, nil
		case "trap":
			return w.trap.url(), nil
		case "addr", "url":
			return w.address(word, rest)
		case "gateway":
			return w.gate.addr, nil
		case "jwks":
			if i := w.issuers[rest]; i != nil {
				return i.published(), nil
			}
		case "token":
			return w.token(rest)
		}
		return generated(name)
	}
}

func (w *world) address(kind, name string) (string, error) {
	var at string
	switch {
	case w.webs[name] != nil:
		at = w.webs[name].addr
	case w.issuers[name] != nil:
		at = w.issuers[name].addr
	case name == "depot" && w.depot != nil:
		at = w.depot.addr
	default:
		return "", fmt.Errorf("<<%s %s>>: no such backend, issuer or depot", kind, name)
	}
	if kind == "url" {
		return "http://" + at, nil
	}
	return at, nil
}

// generated is texts that are too long or too late for a file.
func generated(name string) (string, error) {
	word, rest, _ := strings.Cut(name, " ")
	first, second, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(first)
	switch {
	case word == "gzip":
		var out strings.Builder
		zip := gzip.NewWriter(&out)
		_, err := zip.Write([]byte(rest))
		return out.String(), errors.Join(err, zip.Close())
	case word == "allows":
		return fmt.Sprintf("package mcp.authz\n\ndefault allow := false\n\nallow if input.tool.name == %q\n", rest), nil
	case word == "base64":
		return base64.StdEncoding.EncodeToString([]byte(rest)), nil
	case err != nil:
	case word == "now":
		return strconv.FormatInt(time.Now().Unix()+int64(n), 10), nil
	case word == "repeat":
		return strings.Repeat(second, n), nil
	case word == "members":
		var out strings.Builder
		for i := range n {
			if i > 0 {
				out.WriteByte(',')
			}
			fmt.Fprintf(&out, `"k%d":0`, i)
		}
		return out.String(), nil
	}
	return "", fmt.Errorf("<<%.60s>> is not known", name)
}

// token returns a token of the world by name; "" and good are a good one, none
// is no token.
func (w *world) token(name string) (string, error) {
	if name == "" {
		name = "good"
	}
	spec, known := w.spec.Tokens[name]
	if name == "none" || !known && name != "good" {
		return "", fmt.Errorf("the world has no token %q", name)
	}
	w.mu.Lock()
	made := w.tokens[name]
	w.mu.Unlock()
	if made != "" {
		return made, nil
	}
	made, err := w.mint(spec)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[name] = made
	return made, nil
}
