package mcp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const benchCall = `{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"stripe__create_refund",` +
	`"arguments":{"charge":"ch_3Nx","amount":1999,"currency":"eur","reason":"requested_by_customer","metadata":{"ticket":"T-1","items":[1,2,3]}},` +
	`"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// benchList is a tools/list result of about 1 MB.
func benchList() []byte {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":1,"result":{"tools":[`)
	for i := 0; b.Len() < 1<<20; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"tool_%d","title":"Tool","description":%q,"inputSchema":{"type":"object","properties":{`+
			`"id":{"type":"string","description":"The identifier of the thing that is meant."},"limit":{"type":"integer","minimum":1,"maximum":100},`+
			`"order":{"type":"string","enum":["asc","desc"]}},"required":["id"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}`,
			i, strings.Repeat("Does a thing with \"another\" thing. ", 12))
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

func BenchmarkParseCall(b *testing.B) {
	data := []byte(benchCall)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, e := Parse(data); e != nil {
			b.Fatal(e)
		}
	}
}

// BenchmarkModernCall is all that this package does for one call.
func BenchmarkModernCall(b *testing.B) {
	data := []byte(benchCall)
	header := http.Header{HeaderVersion: {V20260728}, HeaderMethod: {"tools/call"}, HeaderName: {"stripe__create_refund"}}
	var out []byte
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		m, e := Parse(data)
		if e != nil {
			b.Fatal(e)
		}
		if _, e := Classify(header, m); e != nil {
			b.Fatal(e)
		}
		if e := CheckHeaders(header, m); e != nil {
			b.Fatal(e)
		}
		c, e := ReadCall(m.Params)
		if e != nil {
			b.Fatal(e)
		}
		out = NewRequest(NumberID(7), m.Method, c.Params("create_refund")).Append(out[:0])
	}
}

func BenchmarkParseList(b *testing.B) {
	data := benchList()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, e := ParseBackend(data); e != nil {
			b.Fatal(e)
		}
	}
}

// BenchmarkSplitList takes a parsed list apart, down to each tool's members.
func BenchmarkSplitList(b *testing.B) {
	data := benchList()
	m, e := ParseBackend(data)
	if e != nil {
		b.Fatal(e)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		tools, err := Elements(find(m.Result, "tools"))
		if err != nil {
			b.Fatal(err)
		}
		for _, tool := range tools {
			if _, err := Split(tool); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkReadEvent(b *testing.B) {
	data := benchList()
	var stream bytes.Buffer
	if err := NewEventWriter(&stream, nil).Write(Event{Data: data}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewEventReader(bytes.NewReader(stream.Bytes()), 8<<20)
		if e, err := r.Next(); err != nil || len(e.Data) != len(data) {
			b.Fatal(len(e.Data), err)
		}
		if _, err := r.Next(); err != io.EOF {
			b.Fatal(err)
		}
	}
}
