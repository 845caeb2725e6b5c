//lint:file-ignore SA1019 what the modern era gives up is still what legacy clients and servers have

package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// awaitTimeout is how long a notification is waited for.
const awaitTimeout = 10 * time.Second

// inbox keeps the notifications that came for no call until one is awaited, and
// the progress of the call that is under way. It is safe for concurrent use.
type inbox struct {
	mu      sync.Mutex
	notes   [][2]string // method and text
	news    chan struct{}
	calls   int // that progress was asked of
	steps   []string
	last    chan struct{} // closed when the call's last step has come
	stepped func()
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

func (b *inbox) put(method, text string) {
	b.mu.Lock()
	b.notes = append(b.notes, [2]string{method, text})
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// take waits for a notification with this text in it and returns the first.
func (b *inbox) take(ctx context.Context, method, part string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTimeout, fmt.Errorf("no %s with %q in %v", method, part, awaitTimeout))
	defer cancel()
	for {
		b.mu.Lock()
		for i, note := range b.notes {
			if note[0] == method && strings.Contains(note[1], part) {
				b.notes = append(b.notes[:i], b.notes[i+1:]...)
				b.mu.Unlock()
				return note[1], nil
			}
		}
		b.mu.Unlock()
		select {
		case <-b.news:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

func (b *inbox) progress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Params.ProgressToken != b.token() {
		return // of a call that was cancelled
	}
	b.steps = append(b.steps, fmt.Sprintf("%v/%v", r.Params.Progress, r.Params.Total))
	b.stepped()
	if r.Params.Progress == r.Params.Total {
		close(b.last)
	}
}

func (b *inbox) message(_ context.Context, r *mcp.LoggingMessageRequest) {
	text, ok := r.Params.Data.(string)
	if !ok {
		text = fmt.Sprint(r.Params.Data)
	}
	b.put("notifications/message", text)
}

func (b *inbox) updated(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
	b.put("notifications/resources/updated", r.Params.URI)
}

// watch begins a call whose progress counts, and returns its token. stepped is
// called at each step and must not wait for anything.
func (b *inbox) watch(stepped func()) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.steps, b.stepped, b.last = nil, stepped, make(chan struct{})
	return b.token()
}

func (b *inbox) token() string { return fmt.Sprint("call ", b.calls) }

// watched returns the steps of a call that is over. This client hands
// notifications on beside the result, so the last may come after it.
func (b *inbox) watched(succeeded bool) []string {
	if succeeded {
		select {
		case <-b.last:
		case <-time.After(time.Second):
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.steps
}

// operation is one call of a session.
type operation struct {
	session *mcp.ClientSession
	box     *inbox
	call    Call
}

func (o *operation) attempt(ctx context.Context) CallResult {
	out := CallResult{Name: o.call.Name}
	if o.call.method() == toolsCall {
		o.tool(ctx, &out)
		return out
	}
	err := o.perform(ctx, &out)
	if err != nil {
		out.Error = problem(err)
	}
	out.OK = err == nil
	return out
}

func (o *operation) tool(ctx context.Context, out *CallResult) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	params := &mcp.CallToolParams{Name: o.call.Name}
	if o.call.Arguments != nil {
		params.Arguments = o.call.Arguments
	}
	if o.call.LogLevel != "" {
		params.SetMeta(map[string]any{"io.modelcontextprotocol/logLevel": o.call.LogLevel})
	}
	if o.call.Progress || o.call.Cancel {
		params.SetProgressToken(o.box.watch(func() {
			if o.call.Cancel {
				cancel(errors.New("not wanted any more"))
			}
		}))
	}
	result, err := o.session.CallTool(ctx, params)
	if o.call.Progress || o.call.Cancel {
		out.Progress = o.box.watched(err == nil)
	}
	if err != nil {
		out.Error = problem(err)
		return
	}
	out.OK, out.IsError, out.Text = !result.IsError, result.IsError, contentText(result.Content)
}

func contentText(content []mcp.Content) string {
	var text []string
	for _, c := range content {
		if block, ok := c.(*mcp.TextContent); ok {
			text = append(text, block.Text)
		}
	}
	return strings.Join(text, "\n")
}

func (o *operation) perform(ctx context.Context, out *CallResult) (err error) {
	s, name := o.session, o.call.Name
	switch o.call.Method {
	case "prompts/list":
		out.Items, err = collect(s.Prompts(ctx, nil), func(p *mcp.Prompt) string { return p.Name })
	case "resources/list":
		out.Items, err = collect(s.Resources(ctx, nil), func(r *mcp.Resource) string { return r.URI })
	case "resources/templates/list":
		out.Items, err = collect(s.ResourceTemplates(ctx, nil), func(r *mcp.ResourceTemplate) string { return r.URITemplate })
	case "prompts/get":
		out.Text, err = o.prompt(ctx)
	case "resources/read":
		out.Text, err = o.read(ctx)
	case "completion/complete":
		out.Items, err = o.complete(ctx)
	case "logging/setLevel":
		err = s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: mcp.LoggingLevel(name)})
	case "resources/subscribe":
		err = s.Subscribe(ctx, &mcp.SubscribeParams{URI: name})
	case "await":
		var wanted struct{ Contains string }
		if err = o.arguments(&wanted); err == nil {
			out.Text, err = o.box.take(ctx, name, wanted.Contains)
		}
	default:
		err = fmt.Errorf("method %s is not known", o.call.Method)
	}
	return err
}

func (o *operation) arguments(into any) error {
	if o.call.Arguments == nil {
		return nil
	}
	if err := json.Unmarshal(o.call.Arguments, into); err != nil {
		return fmt.Errorf("decoding the arguments of %s: %w", o.call.Method, err)
	}
	return nil
}

func collect[T any](all iter.Seq2[T, error], name func(T) string) ([]string, error) {
	var names []string
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		names = append(names, name(item))
	}
	return names, nil
}

func (o *operation) prompt(ctx context.Context) (string, error) {
	params := &mcp.GetPromptParams{Name: o.call.Name}
	if err := o.arguments(&params.Arguments); err != nil {
		return "", err
	}
	result, err := o.session.GetPrompt(ctx, params)
	if err != nil {
		return "", err
	}
	var content []mcp.Content
	for _, m := range result.Messages {
		content = append(content, m.Content)
	}
	return contentText(content), nil
}

func (o *operation) read(ctx context.Context) (string, error) {
	result, err := o.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: o.call.Name})
	if err != nil {
		return "", err
	}
	var text []string
	for _, c := range result.Contents {
		text = append(text, c.Text)
	}
	return strings.Join(text, "\n"), nil
}

func (o *operation) complete(ctx context.Context) ([]string, error) {
	params := &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: o.call.Name}}
	if strings.Contains(o.call.Name, "{") {
		params.Ref = &mcp.CompleteReference{Type: "ref/resource", URI: o.call.Name}
	}
	var given struct {
		Argument mcp.CompleteParamsArgument
		Context  *mcp.CompleteContext
	}
	if err := o.arguments(&given); err != nil {
		return nil, err
	}
	params.Argument, params.Context = given.Argument, given.Context
	result, err := o.session.Complete(ctx, params)
	if err != nil {
		return nil, err
	}
	return result.Completion.Values, nil
}
