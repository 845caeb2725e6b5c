package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// fetch gets a URL until the answer has this status and a body that matches, and
// writes that into a file: fetch URL STATUS MATCH FILE [HEADER VALUE].
func fetch(ts *testscript.TestScript, _ bool, args []string) {
	url, status, match, header := args[0], args[1], regexp.MustCompile(args[2]), append(args[4:], "X-None", "")
	last := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		ts.Check(err)
		r.Header.Set(header[0], header[1])
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			last = err.Error()
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		last = answer.Status + " " + string(body)
		if err == nil && strings.HasPrefix(last, status) && match.Match(body) {
			ts.Check(os.WriteFile(ts.MkAbs(args[3]), body, 0o644))
			return
		}
	}
	ts.Fatalf("%s: %.500s", url, last)
}

// authority is one that makes certificates for loopback.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) issue(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cmp.Or(a.cert, cert), &key.PublicKey, cmp.Or(a.key, key))
	if err != nil {
		a.t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.issue(name)
	return a
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := replace(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})); err != nil {
		t.Fatal(err)
	}
}

// pair is a certificate with its key as a client has it.
func (a *authority) pair(name string) tls.Certificate {
	cert, key := a.issue(name)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// Clients need a certificate of the authority. Certificate and authority are those
// that the files hold when a client connects.
func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	s := &serving{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), clientCA: filepath.Join(dir, "ca.pem")}
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	renew := func(name string) {
		cert, key := ours.issue(name)
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		writePEM(t, s.cert, "CERTIFICATE", cert.Raw)
		writePEM(t, s.key, "EC PRIVATE KEY", der)
	}
	renew("first")
	writePEM(t, s.clientCA, "CERTIFICATE", ours.cert.Raw)
	transport, err := s.tls()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(tls.NewListener(listener, transport)) }()
	t.Cleanup(func() {
		if err := errors.Join(web.Shutdown(context.Background()), <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	// ask returns the name on the server's certificate.
	ask := func(certs ...tls.Certificate) (string, error) {
		roots := x509.NewCertPool()
		roots.AddCert(ours.cert)
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs},
		}}
		answer, err := client.Get("https://" + listener.Addr().String())
		if err != nil {
			return "", err
		}
		answer.Body.Close()
		return answer.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	mine, theirs := ours.pair("client"), others.pair("client")
	for name, certs := range map[string][]tls.Certificate{"none": nil, "another authority's": {theirs}} {
		if _, err := ask(certs...); err == nil {
			t.Errorf("a client with the certificate %s is let in", name)
		}
	}
	if name, err := ask(mine); err != nil || name != "first" {
		t.Errorf("%q %v", name, err)
	}
	renew("second")
	if name, err := ask(mine); err != nil || name != "second" {
		t.Errorf("the certificate that was renewed: %q %v", name, err)
	}
	writePEM(t, s.clientCA, "CERTIFICATE", others.cert.Raw)
	if _, err := ask(mine); err == nil {
		t.Error("the authority that was replaced still counts")
	}
	if name, err := ask(theirs); err != nil || name != "second" {
		t.Errorf("the new authority: %q %v", name, err)
	}
}

// On an address that others can reach a server is protected, or it is said that it
// is not to be.
func TestGuarded(t *testing.T) {
	const refused = ": others can reach this: give --token-file or --client-ca, or say --insecure-no-auth"
	for listen, want := range map[string]string{
		"127.0.0.1:1": "", "127.1.2.3:1": "", "[::1]:1": "", "localhost:1": "",
		"0.0.0.0:1": refused, ":1": refused, "[::]:1": refused, "192.0.2.1:1": refused, "example.org:1": refused, "localhost.example.org:1": refused,
		"127.0.0.1": ": want host:port, such as 127.0.0.1:8181",
	} {
		got := ""
		if err := (&serving{listen: listen}).guarded(); err != nil {
			got = strings.TrimPrefix(err.Error(), "--listen "+listen)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", listen, got, want)
		}
		for name, s := range map[string]*serving{
			"token": {listen: listen, token: "t"}, "authority": {listen: listen, clientCA: "c"}, "said": {listen: listen, insecureNoAuth: true},
		} {
			if err := s.guarded(); (err != nil) != (want != "" && want != refused) {
				t.Errorf("%s with %s: %v", listen, name, err)
			}
		}
	}
}
