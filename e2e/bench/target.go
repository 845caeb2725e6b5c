package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/regogate/regogate/e2e/world"
)

// target is one way to send one request: where it goes, the bytes of it, and
// what has to come back. It is safe for concurrent use once prove has
// returned.
type target struct {
	url    *url.URL
	client *http.Client
	// headers are those of each client; a worker takes the one of its number.
	headers []http.Header
	// renew makes the headers of a request that no other has sent; nil where
	// headers are used again.
	renew func() (http.Header, error)
	body  []byte
	// judge looks at the result of the first answer.
	judge func(result json.RawMessage) error

	want []byte // the answer that judge was content with
}

// header returns the headers of the next request of the client of this number.
func (t *target) header(number int) (http.Header, error) {
	if t.renew != nil {
		return t.renew()
	}
	return t.headers[number%len(t.headers)], nil
}

// send sends the request and reads the whole answer into buf. An HTTP status
// other than 200 is an error.
func (t *target) send(ctx context.Context, header http.Header, buf *bytes.Buffer) error {
	r := &http.Request{
		Method: http.MethodPost, URL: t.url, Host: t.url.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        header,
		ContentLength: int64(len(t.body)),
		Body:          io.NopCloser(bytes.NewReader(t.body)),
	}
	resp, err := t.client.Do(r.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	buf.Reset()
	if _, err := buf.ReadFrom(resp.Body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %d: %s", resp.StatusCode, clip(buf.Bytes()))
	}
	return nil
}

// prove sends the request once, looks at the whole answer and remembers it:
// every later one has to be the same.
func (t *target) prove(ctx context.Context) error {
	header, err := t.header(0)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := t.send(ctx, header, &buf); err != nil {
		return err
	}
	var answer struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(buf.Bytes(), &answer); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	if answer.Result == nil || answer.Error != nil || !bytes.Equal(answer.ID, []byte("1")) {
		return fmt.Errorf("not the result of request 1: %s", clip(buf.Bytes()))
	}
	if err := t.judge(answer.Result); err != nil {
		return err
	}
	t.want = bytes.Clone(buf.Bytes())
	return nil
}

// check fails for an answer that is not the proven one.
func (t *target) check(answer []byte) error {
	if bytes.Equal(answer, t.want) {
		return nil
	}
	return fmt.Errorf("an answer of %d bytes where the first had %d: %s", len(answer), len(t.want), clip(answer))
}

// strange makes the same request with a token that nobody has seen before, each
// time it is sent.
func (t *target) strange(token func() (string, error)) *target {
	other := &target{url: t.url, client: newClient(), body: t.body, judge: t.judge}
	other.renew = func() (http.Header, error) {
		fresh, err := token()
		if err != nil {
			return nil, err
		}
		header := t.headers[0].Clone()
		header.Set("Authorization", "Bearer "+fresh)
		return header, nil
	}
	return other
}

func clip(b []byte) []byte { return b[:min(len(b), 300)] }

// errCaptured ends a request that is only looked at.
var errCaptured = errors.New("captured")

// capture makes a target of the first request that do sends with the client.
func capture(c *world.Client, judge func(json.RawMessage) error, do func(*world.Client) error) (*target, error) {
	t := &target{client: newClient(), judge: judge}
	c.HTTP = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		t.url, t.headers, t.body = r.URL, []http.Header{r.Header.Clone()}, body
		return nil, errCaptured
	})}
	if err := do(c); !errors.Is(err, errCaptured) {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	return t, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// listTarget asks for all tools; names are those that have to come, in any
// order.
func listTarget(url, token string, names []string) (*target, error) {
	judge := func(result json.RawMessage) error {
		var list struct {
			Tools []struct {
				Name        string          `json:"name"`
				InputSchema json.RawMessage `json:"inputSchema"`
			} `json:"tools"`
			Next string `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &list); err != nil {
			return err
		}
		var got []string
		for _, t := range list.Tools {
			if len(t.InputSchema) < 2 {
				return fmt.Errorf("tool %s has no schema", t.Name)
			}
			got = append(got, t.Name)
		}
		if slices.Sort(got); !slices.Equal(got, names) || list.Next != "" {
			return fmt.Errorf("got a list of %d tools, next page %q, want other %d", len(got), list.Next, len(names))
		}
		return nil
	}
	return capture(&world.Client{URL: url, Token: token}, judge, func(c *world.Client) error {
		_, err := c.List(context.Background())
		return err
	})
}

// arguments are those of the call that is measured.
const arguments = `{"owner":"example","repository":"example/service","title":"The nightly build fails on the second step","labels":["build","urgent"],"limit":20}`

// question is what all are asked: which tool the caller calls, and which tools
// each persona sees through the gateway.
type question struct {
	call      callTarget
	most, few []string // exposed names, sorted: of allSeeing and of caller
}

type callTarget struct{ server, tool, exposed string }

// question asks the shipped policy who sees what, and picks a tool in the
// middle of what the caller sees.
func (t *toolset) question(ctx context.Context) (question, error) {
	var q question
	var err error
	if q.most, err = t.visible(ctx, allSeeing); err != nil {
		return q, err
	}
	if q.few, err = t.visible(ctx, caller); err != nil {
		return q, err
	}
	if len(q.few) == 0 {
		return q, fmt.Errorf("the shipped policy lets %s see nothing", caller)
	}
	q.call.exposed = q.few[len(q.few)/2]
	for _, e := range t.entries {
		if e.Server+"__"+e.Name == q.call.exposed {
			q.call.server, q.call.tool = e.Server, e.Name
		}
	}
	return q, nil
}

func (q question) String() string {
	return fmt.Sprintf("%s calls %s; through regogate %s sees %d tools and %s %d",
		caller, q.call.exposed, allSeeing, len(q.most), caller, len(q.few))
}

// to makes a request of the call, sent to url under that name.
func (c callTarget) to(url, token, name string) (*target, error) {
	judge := func(result json.RawMessage) error {
		var got callResult
		if err := json.Unmarshal(result, &got); err != nil {
			return err
		}
		want := c.server + " ran " + c.tool + " with " + arguments
		if len(got.Content) != 1 || got.Content[0].Text != want {
			return fmt.Errorf("the backend did something else than asked: %s", clip(result))
		}
		return nil
	}
	return capture(&world.Client{URL: url, Token: token}, judge, func(w *world.Client) error {
		_, err := w.Call(context.Background(), name, []byte(arguments))
		return err
	})
}
