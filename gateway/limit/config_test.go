package limit

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/regogate/regogate/registry"
	"github.com/regogate/regogate/registry/strictyaml"
)

func TestConfig(t *testing.T) {
	const rule = "is not valid: want a number from 1 to 1000000 and a time, such as 100/s, 10/m or 5/h"
	for _, c := range []struct {
		name, text string
		want       Config
		problems   []string
	}{
		{name: "nothing", text: "{}"},
		{name: "everything", text: "{per_principal: {rate: 100/s, burst: 200}, per_tool: {rate: 10/m}, tools: {a__b: {rate: 5/h, burst: 1}}, redis: {addrs: ['r:1']}}", want: Config{
			PerPrincipal: &Limit{Rate{100, time.Second}, 200}, PerTool: &Limit{Rate: Rate{10, time.Minute}},
			Tools: map[string]Limit{"a__b": {Rate{5, time.Hour}, 1}}, Redis: &registry.RedisConfig{Addrs: []string{"r:1"}},
		}},
		{name: "no rate", text: "{per_principal: {}, per_tool: {burst: 5}, tools: {a__b: {}}}", problems: []string{
			"per_principal.rate: is missing; want a number and a time, such as 100/s, 10/m or 5/h",
			"per_tool.rate: is missing; want a number and a time, such as 100/s, 10/m or 5/h",
			"tools.a__b.rate: is missing; want a number and a time, such as 100/s, 10/m or 5/h",
		}},
		{name: "bursts", text: "{per_principal: {rate: 1/s, burst: -1}, per_tool: {rate: 1/s, burst: 1000001}}", problems: []string{
			"per_principal.burst: want 1 to 1000000; without it, it is the number of rate",
			"per_tool.burst: want 1 to 1000000; without it, it is the number of rate",
		}},
		{name: "no tool", text: "{tools: {open: {rate: 1/s}, a__: {rate: 1/s}}}", problems: []string{
			"tools.a__: is no name of a tool; want SERVER__TOOL, as tools/list on /mcp has it",
			"tools.open: is no name of a tool; want SERVER__TOOL, as tools/list on /mcp has it",
		}},
		{name: "a Redis for nothing", text: "{redis: {addrs: [r]}}", problems: []string{
			"redis: has no effect without per_principal, per_tool or tools", "redis.addrs[0]: want host:port",
		}},
		{name: "other words", text: "{per_principal: 100/s, per_client: {rate: 1/s}}", problems: []string{
			"per_client: unknown key; known here: per_principal, per_tool, tools, redis", "per_principal: want a mapping of keys to values, this is a string",
		}},
		{name: "no number", text: "{per_tool: {rate: 100}}", problems: []string{"per_tool.rate: " + rule}},
		{name: "no time", text: "{per_tool: {rate: '100/'}}", problems: []string{"per_tool.rate: " + rule}},
		{name: "another time", text: "{per_tool: {rate: 100/d}}", problems: []string{"per_tool.rate: " + rule}},
		{name: "never", text: "{per_tool: {rate: 0/s}}", problems: []string{"per_tool.rate: " + rule}},
		{name: "too often", text: "{per_tool: {rate: 1000001/s}}", problems: []string{"per_tool.rate: " + rule}},
		{name: "another way to write a number", text: "{per_tool: {rate: +1/s}}", problems: []string{"per_tool.rate: " + rule}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got Config
			_, problems := strictyaml.Decode([]byte(c.text), &got, strictyaml.Options{File: "f"})
			if len(problems) == 0 {
				problems = got.Validate("")
			}
			var lines []string
			for _, p := range problems {
				lines = append(lines, p.Path+": "+p.Message)
			}
			if !slices.Equal(lines, c.problems) {
				t.Errorf("got %q\nwant %q", lines, c.problems)
			}
			if len(c.problems) == 0 && !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	for _, text := range []string{"100/s", "10/m", "5/h"} {
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r.String() != text {
			t.Errorf("%s is %s: %v", text, r, err)
		}
	}
}
