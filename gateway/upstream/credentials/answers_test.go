package credentials

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/regogate/regogate/e2e/issuer"
)

func newTLS(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestAnswers: what is no token of the right kind is none, and the error says
// what came instead of it in one line.
func TestAnswers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed: %s", r.URL)
	}))
	defer elsewhere.Close()
	raw := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const ok = `{"access_token":"good","token_type":"bEaReR","issued_token_type":"` + typeJWT + `","expires_in":60`
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		code   string // of a refusal
		want   string // "" is a token
	}{
		{"good", raw(200, "application/json;charset=UTF-8", ok+`}`), "", ""},
		{"a number in quotes", raw(200, "application/json", strings.Replace(ok, `60`, `"60"`, 1)+`}`), "", ""},
		{"without issued_token_type", raw(200, "application/json", `{"access_token":"good","token_type":"Bearer"}`), "", ""},
		{"HTML", raw(200, "text/html", "<html>sign in</html>"), "", "ask the issuer: it answered 200 with something else than application/json"},
		{"an HTML error", raw(403, "text/html", "<html>no</html>"), "", "ask the issuer: it answered 403 with something else than application/json"},
		{"a form", raw(200, "application/x-www-form-urlencoded", "access_token=a&token_type=bearer"), "", "ask the issuer: it answered 200 with something else than application/json"},
		{"huge", raw(200, "application/json", `{"access_token":"`+strings.Repeat("a", maxAnswer)+`","token_type":"Bearer"}`), "", "ask the issuer: it answered 200 with more than 131072 bytes"},
		{"a huge token", raw(200, "application/json", `{"access_token":"`+strings.Repeat("a", maxToken+1)+`","token_type":"Bearer"}`), "", "the issuer gave a token longer than 16384 bytes"},
		{"two tokens", raw(200, "application/json", ok+`,"access_token":"other"}`), "", "ask the issuer: it answered 200 with what is not one JSON object"},
		{"a list", raw(200, "application/json", `[`+ok+`}]`), "", "ask the issuer: it answered 200 with what is not one JSON object"},
		{"half", raw(200, "application/json", ok), "", "ask the issuer: it answered 200 with what is not one JSON object"},
		{"nothing", raw(200, "application/json", ``), "", "ask the issuer: it answered 200 with what is not one JSON object"},
		{"no token", raw(200, "application/json", `{"token_type":"Bearer"}`), "", "ask the issuer: oauth2: server response missing access_token"},
		{"no type", raw(200, "application/json", `{"access_token":"a"}`), "", "the issuer gave a token whose token_type is not Bearer"},
		{"another type", raw(200, "application/json", `{"access_token":"a","token_type":"N_A"}`), "", "the issuer gave a token whose token_type is not Bearer"},
		{"DPoP", raw(200, "application/json", `{"access_token":"a","token_type":"DPoP"}`), "", "the issuer gave a token whose token_type is not Bearer"},
		{"a refresh token", raw(200, "application/json", strings.Replace(ok, typeJWT, "urn:ietf:params:oauth:token-type:refresh_token", 1)+`}`), "", "the issuer gave another type of token than an access token"},
		{"a header's end", raw(200, "application/json", `{"access_token":"a\r\nX-Admin: 1","token_type":"Bearer"}`), "", "the issuer gave a token with characters that no token has"},
		{"expired", raw(200, "application/json", `{"access_token":"a","token_type":"Bearer","expires_in":-5}`), "", "the issuer gave a token that has already expired"},
		{"expires at once", raw(200, "application/json", `{"access_token":"a","token_type":"Bearer","expires_in":0}`), "", "the issuer gave a token that has already expired"},
		{"the user's own", func(w http.ResponseWriter, r *http.Request) {
			issuer.Answer(w, 200, map[string]any{"access_token": r.PostForm.Get("subject_token"), "token_type": "Bearer"})
		}, "", "the issuer gave the user's own token back, which is not for the server"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "", "the issuer answered 307: redirects are not followed; set token_url to where it leads"},
		{"a redirect on the same host", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, "", "the issuer answered 302: redirects are not followed; set token_url to where it leads"},
		{"refused", raw(400, "application/json", `{"error":"invalid_grant"}`), "invalid_grant", "the issuer refused with invalid_grant"},
		{"refused with 200", raw(200, "application/json", `{"error":"invalid_target","error_description":"no such resource"}`), "invalid_target", "the issuer refused with invalid_target: no such resource"},
		{"the client is refused", raw(401, "application/json", `{"error":"invalid_client"}`), "invalid_client", "the issuer refused with invalid_client"},
		{"a code with a line break", raw(400, "application/json", `{"error":"a\nb"}`), "a b", "the issuer refused with a b"},
		{"no code", raw(400, "application/json", `{"message":"no"}`), "", "the issuer answered 400 without an OAuth error"},
		{"overloaded", raw(503, "application/json", `{"error":"temporarily_unavailable"}`), "", "the issuer answered 503 with temporarily_unavailable"},
		{"too many requests", raw(429, "application/json", `{"error":"access_denied"}`), "", "the issuer answered 429 with access_denied"},
		{"broken", raw(500, "application/json", `{"error":"server_error"}`), "", "the issuer answered 500 with server_error"},
		{"hung up", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, "", "ask the issuer: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, Config{Grant: TokenExchange}, nil)
			ann := r.user("ann", time.Hour)
			r.issuer.Script(func(w http.ResponseWriter, q *http.Request) bool {
				tt.answer(w, q)
				return true
			})
			token, err := r.Token(t.Context(), ann)
			if tt.want == "" {
				if err != nil || token != "good" {
					t.Fatalf("the token is %q, the error %v", string(token), err)
				}
				return
			}
			var no *Refusal
			if err == nil || token != "" || err.Error() != tt.want || errors.As(err, &no) != (tt.code != "") || no != nil && no.Code != tt.code {
				t.Errorf("the error is %v, want %s (%q)", err, tt.want, tt.code)
			}
			r.noSecrets(r.log.String(), ann)
			if n := strings.Count(r.log.String(), "\n"); n != 1 {
				t.Errorf("%d log lines: %s", n, r.log)
			}
		})
	}
}

// TestUnreachable: a port without a listener is an issuer that gives no answer.
func TestUnreachable(t *testing.T) {
	r := newRig(t, Config{}, nil)
	r.issuer.Close()
	_, err := r.Token(t.Context(), Gateway())
	var no *Refusal
	if err == nil || errors.As(err, &no) || !strings.HasPrefix(err.Error(), "ask the issuer: dial tcp") || strings.Contains(err.Error(), "/token") {
		t.Errorf("the error is %v", err)
	}
}
