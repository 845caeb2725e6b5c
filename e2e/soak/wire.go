package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// message is any JSON-RPC message. Nothing of the gateway's own reading of the
// wire takes part here.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

type failure struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

type object = map[string]any

func (m message) isRequest() bool  { return m.Method != "" && m.ID != nil }
func (m message) isResponse() bool { return m.Method == "" }

func encode(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // everything here is made of strings and numbers
	}
	return out
}

func request(id any, method string, params any) message {
	return message{JSONRPC: "2.0", ID: encode(id), Method: method, Params: encode(params)}
}

func notification(method string, params any) []byte {
	return encode(message{JSONRPC: "2.0", Method: method, Params: encode(params)})
}

func result(id json.RawMessage, v any) []byte {
	return encode(message{JSONRPC: "2.0", ID: id, Result: encode(v)})
}

func refusal(id json.RawMessage, code int, text string) []byte {
	return encode(message{JSONRPC: "2.0", ID: id, Error: &failure{Code: code, Message: text}})
}

// told is what any message of this soak can carry.
type told struct {
	Name           string                     `json:"name"`
	URI            string                     `json:"uri"`
	Message        string                     `json:"message"`
	Data           string                     `json:"data"`
	Token          json.RawMessage            `json:"progressToken"`
	RequestState   string                     `json:"requestState"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
	Arguments      struct {
		Mark string `json:"mark"`
	} `json:"arguments"`
	Meta struct {
		Token        json.RawMessage `json:"progressToken"`
		Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
	} `json:"_meta"`
	Capabilities struct {
		Elicitation json.RawMessage `json:"elicitation"`
	} `json:"capabilities"`
	Notifications struct {
		Resources []string `json:"resourceSubscriptions"`
	} `json:"notifications"`
	RequestID json.RawMessage `json:"requestId"`
}

func read(params json.RawMessage) (t told) {
	// What is of another type stays empty, and is found out by that.
	_ = json.Unmarshal(params, &t)
	return t
}

// events reads server-sent events until one is not wanted any more or the
// stream ends, which is io.EOF.
func events(r io.Reader, each func(id, name string, data []byte) (more bool)) error {
	in := bufio.NewReader(r)
	var id, name string
	var data [][]byte
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimRight(line, "\r\n")
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if len(data) > 0 || id != "" {
				if !each(id, name, bytes.Join(data, []byte("\n"))) {
					return nil
				}
			}
			id, name, data = "", "", nil
		case key == "id":
			id = value
		case key == "event":
			name = value
		case key == "data":
			data = append(data, []byte(value))
		}
	}
}

// one reads exactly one JSON-RPC message.
func one(data []byte) (m message, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return m, err
	}
	switch {
	case m.JSONRPC != "2.0":
		err = errors.New("it is no JSON-RPC 2.0")
	case d.More():
		err = errors.New("more follows")
	case m.Method == "" && (m.Result == nil) == (m.Error == nil):
		err = errors.New("it has neither a method nor exactly one of result and error")
	}
	return m, err
}
