package plane

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/keys"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// oauth is a wire with the service "shop" that takes OAuth2 tokens of issuer, and
// tells what it was asked with.
func oauth(t *testing.T, issuer http.HandlerFunc) (*wire, string) {
	tokens := httptest.NewTLSServer(issuer)
	t.Cleanup(tokens.Close)
	return wired(t, `"allow_insecure_tls": true, "credentials": {"oauth2": {"token_url": "`+tokens.URL+`", "client_id": "me", "client_secret": "hush"}}`)
}

func wired(t *testing.T, config string) (*wire, string) {
	t.Helper()
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	}))
	t.Cleanup(shop.Close)
	s, err := newService("shop", fmt.Sprintf(`{"url": %q, %s}`, shop.URL, config), nil, logger{out: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{p: &Plane{o: Options{Download: time.Minute}}, services: map[string]*service{"shop": s}}
	t.Cleanup(w.close)
	return w, shop.URL
}

func issue(w http.ResponseWriter, token string, seconds int) {
	_, _ = fmt.Fprintf(w, `{"access_token": %q, "token_type": "bearer", "expires_in": %d}`, token, seconds)
}

// post sends a request as OPA does, and returns the authorization that came in.
func post(w *wire, url string, timeout int64) (string, error) {
	c, err := w.NewClient(rest.Config{Name: "shop", ResponseHeaderTimeoutSeconds: &timeout})
	if err != nil {
		return "", err
	}
	resp, err := c.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return string(got), err
}

// OPA's credentials are not made for more than one goroutine: a race is what this
// finds.
func TestRequestsAndClientsShareNoCredentials(t *testing.T) {
	brief := func(w http.ResponseWriter, _ *http.Request) { issue(w, "sesame", 1) } // fetched for each request
	for name, from := range map[string]func() (*wire, string){
		"bearer": func() (*wire, string) { return wired(t, `"credentials": {"bearer": {"token": "sesame"}}`) },
		"oauth2": func() (*wire, string) { return oauth(t, brief) },
	} {
		t.Run(name, func(t *testing.T) {
			w, url := from()
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for n := range 10 {
						if got, err := post(w, url, int64(1000+10*n+i)); got != "Bearer sesame" || err != nil {
							t.Errorf("%q, %v", got, err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// A token is kept for what comes later, with any client.
func TestATokenIsFetchedOnce(t *testing.T) {
	var issued atomic.Int64
	w, url := oauth(t, func(w http.ResponseWriter, _ *http.Request) { issue(w, fmt.Sprint(issued.Add(1)), 3600) })
	for timeout := range int64(3) {
		for range 2 {
			if got, err := post(w, url, 1000+timeout); got != "Bearer 1" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
	}
}

// While the issuer lets one request wait, another goes through.
func TestNobodyWaitsForTheTokenOfAnother(t *testing.T) {
	var issued atomic.Int64
	asked, held := make(chan struct{}), make(chan struct{})
	w, url := oauth(t, func(w http.ResponseWriter, _ *http.Request) {
		n := issued.Add(1)
		if n == 1 {
			close(asked)
			<-held
		}
		issue(w, fmt.Sprint(n), 3600)
	})
	first := make(chan string)
	go func() {
		got, err := post(w, url, 1000)
		first <- fmt.Sprint(got, err)
	}()
	<-asked
	got, err := post(w, url, 1000)
	if got != "Bearer 2" || err != nil {
		t.Errorf("the second: %q, %v", got, err)
	}
	close(held)
	if got := <-first; got != "Bearer 1<nil>" {
		t.Errorf("the first: %s", got)
	}
}

// A service whose key is another one under the same name gets clients of its own.
func TestAKeyIsReplaced(t *testing.T) {
	const raw = `{"url": "http://127.0.0.1:1"}`
	made := func(secret string) *service {
		s, err := newService("s", raw, map[string]*keys.Config{"k": {Key: secret, Algorithm: "HS256"}}, logger{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := made("one")
	w := &wire{services: map[string]*service{"s": first}}
	if w.adopt(map[string]*service{"s": made("one")}); w.services["s"] != first {
		t.Error("an unchanged service was replaced")
	}
	if w.adopt(map[string]*service{"s": made("two")}); w.services["s"] == first || len(w.retired) != 1 {
		t.Error("a service with another key was kept")
	}
}
