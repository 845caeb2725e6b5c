package cases

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/regogate/regogate/gateway/mcp"
	"github.com/regogate/regogate/gateway/policy/decisionlog"
)

// judge returns what is not as the step expects. other is the outcome that
// SameAs names.
func (o *outcome) judge(other *outcome) []string {
	e, r := &o.step.Expect, o.reply
	switch {
	case e.Closed && r.closed, e.Refused && r.refused:
		return nil
	case e.Refused:
		return []string{fmt.Sprintf("the connection was not refused: status %d, %v", r.status, r.err)}
	case e.Closed:
		return []string{fmt.Sprintf("the connection was not just closed: status %d, %v", r.status, r.err)}
	case r.err != nil:
		return []string{"no whole answer: " + r.err.Error()}
	}
	var problems []string
	for _, check := range []func(*outcome) []string{
		(*outcome).judgeHTTP, (*outcome).judgeMessage, (*outcome).judgeList, (*outcome).judgeStream, (*outcome).judgeTrace,
	} {
		problems = append(problems, check(o)...)
	}
	if e.SameAs != "" {
		problems = append(problems, o.same(other)...)
	}
	if len(problems) > 0 {
		problems = append(problems, fmt.Sprintf("the answer was %d %s", r.status, clip(string(r.body))))
	}
	return problems
}

func (o *outcome) judgeHTTP() (problems []string) {
	e, r := &o.step.Expect, o.reply
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if e.Status != "" && !e.Status.has(strconv.Itoa(r.status)) {
		add("status is %d, want %s", r.status, e.Status)
	}
	if e.OK && r.status != 200 {
		add("status is %d, want 200", r.status)
	}
	if e.Empty && len(r.body) > 0 {
		add("there is a body")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if text := like(strings.Join(r.header.Values(name), "\n"), e.Headers[name]); text != "" {
			add("header %s: %s", name, text)
		}
	}
	for _, name := range e.Absent {
		if got := r.header.Values(name); got != nil {
			add("header %s is there: %q", name, got)
		}
	}
	for _, text := range e.Not {
		if strings.Contains(string(r.body)+fmt.Sprint(r.header), text) {
			add("the answer holds %q", text)
		}
	}
	if e.Within > 0 && r.took > e.Within {
		add("it took %s, more than %s", r.took, e.Within)
	}
	if e.Taken > 0 && r.taken > int64(e.Taken) {
		add("%d bytes of the request were taken, more than %s", r.taken, e.Taken)
	}
	return problems
}

func (o *outcome) judgeMessage() (problems []string) {
	e := &o.step.Expect
	message := jsontext.Value(o.reply.message())
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	result, failure := at(message, "/result"), at(message, "/error")
	if e.OK && (result == nil || failure != nil) {
		add("there is no result")
	}
	if e.Error != "" {
		if result != nil || !e.Error.has(string(at(failure, "/code"))) {
			add("the JSON-RPC error is %s, want %s and no result", show(failure), e.Error)
		}
		if text, ok := mcp.Text(at(failure, "/message")); !ok || text == "" {
			add("the JSON-RPC error has no message")
		}
	}
	id := e.ID
	if id == "" && (e.OK || e.Error != "") && (o.step.Call != "" || o.step.List) {
		id = "1"
	}
	if got := string(at(message, "/id")); id != "" && got != id {
		add("the id of the answer is %s, want %s", clip(got), clip(id))
	}
	if message == nil {
		message = o.reply.body // a document, such as metadata
	}
	return append(problems, e.Probe.check(message)...)
}

// judgeList compares the names in a list.
func (o *outcome) judgeList() []string {
	want := o.step.Expect.Tools
	if want == nil {
		return nil
	}
	got := []string{}
	for _, page := range append([]*reply{o.reply}, o.more...) {
		tools, err := mcp.Elements(at(page.message(), "/result/tools"))
		if err != nil {
			return []string{"the result has no array of tools"}
		}
		for _, t := range tools {
			name, _ := mcp.Text(at(t, "/name"))
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		return []string{fmt.Sprintf("the list is %q, want %q", got, want)}
	}
	return nil
}

// judgeStream compares the events and comments of an answer that is a stream.
func (o *outcome) judgeStream() []string {
	e := &o.step.Expect
	if e.Events == nil && e.Comments == 0 {
		return nil
	}
	var got []string
	for _, data := range o.reply.events {
		got = append(got, string(data))
	}
	return e.stream(got, comments(o.reply.body))
}

// stream compares what a stream has brought.
func (e *Expect) stream(events []string, comments int) (problems []string) {
	if comments < e.Comments {
		problems = append(problems, fmt.Sprintf("%d comments have come, want %d", comments, e.Comments))
	}
	if len(events) != len(e.Events) {
		return append(problems, fmt.Sprintf("%d events have come, want %d: %q", len(events), len(e.Events), events))
	}
	for i, expression := range e.Events {
		if text := like(events[i], expression); text != "" {
			problems = append(problems, text)
		}
	}
	return problems
}

// judgeTrace looks at the decision records and the log line.
func (o *outcome) judgeTrace() (problems []string) {
	e := &o.step.Expect
	for _, field := range slices.Sorted(maps.Keys(e.Log)) {
		if got := fmt.Sprint(o.line[field]); got != e.Log[field] {
			problems = append(problems, fmt.Sprintf("the log line's %s is %q, want %q", field, got, e.Log[field]))
		}
	}
	if e.Records == nil {
		return problems
	}
	if len(o.records) != len(e.Records) {
		return append(problems, fmt.Sprintf("there are %d decision records, want %d", len(o.records), len(e.Records)))
	}
	for i, r := range o.records {
		problems = append(problems, e.Records[i].check(r)...)
	}
	return problems
}

func (want *Record) check(r *decisionlog.Record) []string {
	var list []string
	if r.List != nil {
		list = []string{}
		for _, t := range r.List.Names(true) {
			list = append(list, t.Server+"/"+t.Name)
		}
	}
	got := Record{Rule: r.Rule, List: list, Allowed: r.Allowed, Code: r.Code, Reasons: r.Reasons}
	if r.List == nil {
		got.Tool = r.Thing().Server + "/" + r.Thing().Name
	}
	if want.Reasons == nil {
		got.Reasons = nil
	}
	if a, b := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", *want); a != b {
		return []string{"the decision record is " + a + ", want " + b}
	}
	return nil
}

// same compares two answers but for the name that was asked for and what is
// different in every answer.
func (o *outcome) same(other *outcome) []string {
	if other == nil {
		return []string{"same_as names a step that has not run"}
	}
	mine, theirs := o.neutral(), other.neutral()
	if mine != theirs {
		return []string{fmt.Sprintf("the answers differ:\n%s\nand\n%s", clip(mine), clip(theirs))}
	}
	return nil
}

func (o *outcome) neutral() string {
	h := o.reply.header.Clone()
	for _, name := range []string{"Date", "X-Request-Id", "Content-Length"} {
		h.Del(name)
	}
	body := string(o.reply.body)
	if o.step.Call != "" {
		body = strings.ReplaceAll(body, o.step.Call, "NAME")
	}
	return fmt.Sprint(o.reply.status, h) + "\n" + idMember.ReplaceAllString(body, `"id":ID`)
}

// idMember is the id at the beginning of an answer.
var idMember = regexp.MustCompile(`"id":("[^"]*"|[0-9]+)`)
