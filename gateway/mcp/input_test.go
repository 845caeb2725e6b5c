package mcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	elicit = `{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`
	sample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":9007199254740993}}`
	roots  = `{"method":"roots/list"}`
)

func TestReadInputRequired(t *testing.T) {
	result := `{"resultType":"input_required","inputRequests":{"b":` + elicit + `, "a" :` + sample + `,"":` + roots + `,"r":{"method":"roots/list","params":{}}},"requestState":"\u0073"}`
	r, err := ReadInputRequired(jsontext.Value(result))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, q := range r.Requests {
		got = append(got, fmt.Sprintf("%s %s %s", q.Key, q.Method, q.Params))
	}
	want := []string{
		`b elicitation/create {"message":"m","requestedSchema":{"type":"object","properties":{}}}`,
		`a sampling/createMessage {"messages":[],"maxTokens":9007199254740993}`,
		` roots/list null`, `r roots/list {}`,
	}
	if !slices.Equal(got, want) || r.RequestState != "s" || !r.HasState {
		t.Errorf("got %q, %q, %t", got, r.RequestState, r.HasState)
	}
	wantValue(t, "written again", r.Result(),
		`{"resultType":"input_required","inputRequests":{"b":`+elicit+`,"a":`+sample+`,"":`+roots+`,"r":{"method":"roots/list","params":{}}},"requestState":"s"}`)
	wantValue(t, "a bare state", (&InputRequired{HasState: true}).Result(), `{"resultType":"input_required","requestState":""}`)
}

func TestReadInputRequiredRefuses(t *testing.T) {
	asks := func(request string) string { return `{"inputRequests":{"k":` + request + `}}` }
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"%d":%s`, i, roots))
		}
		return `{"inputRequests":{` + strings.Join(list, ",") + `}}`
	}
	for result, problem := range map[string]string{
		`{"requestState":""}`:  "",
		`{"inputRequests":{}}`: "",
		`{"status":"input_required","inputRequests":{"k":` + elicit + `}}`: "",
		many(MaxInputRequests):                  "",
		many(MaxInputRequests + 1):              "inputRequests must not hold more than 64",
		`{}`:                                    "an input_required result needs inputRequests or requestState",
		`[]`:                                    "the result must be an object",
		`{"requestState":null}`:                 "requestState must be a string",
		`{"requestState":1,"inputRequests":{}}`: "requestState must be a string",
		`{"inputRequests":null}`:                "inputRequests: not an object",
		`{"inputRequests":[` + elicit + `]}`:    "inputRequests: not an object",
		`{"inputRequests":{"\ud800":` + roots + `}}`:                  "a key of inputRequests is not valid text",
		`{"requestState":"","RequestState":""}`:                       `member "RequestState" of the result differs from "requestState" only in case`,
		`{"requestState":"","inputrequests":{}}`:                      `member "inputrequests" of the result differs from "inputRequests" only in case`,
		asks(`"roots/list"`):                                          `inputRequests["k"] must be an object`,
		asks(`{}`):                                                    `inputRequests["k"]: method must be sampling/createMessage, elicitation/create or roots/list`,
		asks(`{"method":"tools/call","params":{}}`):                   `inputRequests["k"]: method must be sampling/createMessage, elicitation/create or roots/list`,
		asks(`{"method":1,"params":{}}`):                              `inputRequests["k"]: method must be sampling/createMessage, elicitation/create or roots/list`,
		asks(`{"method":"elicitation/create"}`):                       `inputRequests["k"]: params must be an object`,
		asks(`{"method":"sampling/createMessage","params":null}`):     `inputRequests["k"]: params must be an object`,
		asks(`{"method":"roots/list","params":null}`):                 `inputRequests["k"]: params must be an object`,
		asks(`{"method":"roots/list","Method":"elicitation/create"}`): `member "Method" of inputRequests["k"] differs from "method" only in case`,
	} {
		r, err := ReadInputRequired(jsontext.Value(result))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != problem || (r == nil) == (problem == "") {
			t.Errorf("%s: got %+v, %q, want %q", result, r, got, problem)
		}
	}
}
