package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
)

// load reads the document that holds an issuer's keys. It returns at most
// maxDocument bytes; a longer document is an error.
type load func(ctx context.Context) ([]byte, error)

func loadFile(path string) load {
	return func(context.Context) ([]byte, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		// Opening a pipe would wait for somebody to write into it.
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("open %s: not a regular file", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readDocument(f)
	}
}

// loadURL fetches with a transport of its own, so that nothing that another
// issuer does can hold it up.
func loadURL(address string) load {
	client := &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		// Minutes lie between fetches: a connection kept open only keeps
		// goroutines.
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/jwk-set+json, application/json")
		res, err := client.Do(req)
		if err != nil {
			return nil, plain(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("answered %d, want 200", res.StatusCode)
		}
		return readDocument(res.Body)
	}
}

// sameHost follows a redirect only within what the operator has configured.
func sameHost(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return errors.New("redirects to another host or scheme, which is not followed")
	}
	if len(via) >= 3 {
		return errors.New("redirects more than 3 times")
	}
	return nil
}

// plain drops the URL that net/http repeats in its errors: the log line names
// the source already, without the query that may hold a secret.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func readDocument(r io.Reader) ([]byte, error) {
	doc, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, err
	}
	if len(doc) > maxDocument {
		return nil, fmt.Errorf("longer than %d bytes", maxDocument)
	}
	return doc, nil
}
