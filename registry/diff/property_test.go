package diff

import (
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

// document draws small values from few parts, so that two of them are often alike.
func document(depth int) *rapid.Generator[any] {
	plain := rapid.SampledFrom([]any{nil, true, "", "a", "b", "a long text of words that go on and on until it is long enough", 1, 2})
	if depth == 0 {
		return plain
	}
	inner := document(depth - 1)
	return rapid.OneOf(plain,
		rapid.Map(rapid.SliceOfN(inner, 0, 3), func(v []any) any { return v }),
		rapid.Map(rapid.SliceOfN(plain, 18, 20), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c.d", ""}), inner, 0, 3), func(v map[string]any) any { return v }))
}

// Whatever differs shows, and nothing else does.
func TestNoDifferenceIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var encoded [2]string
		for i := range encoded {
			text, err := json.Marshal(map[string]any{"v": document(3).Draw(t, "document")}, json.Deterministic(true))
			if err != nil {
				t.Fatal(err)
			}
			encoded[i] = string(text)
		}
		fields := Definitions([]byte(encoded[0]), []byte(encoded[1]))
		if (len(fields) == 0) != (encoded[0] == encoded[1]) {
			t.Fatalf("of %s and %s: %v", encoded[0], encoded[1], fields)
		}
		for _, f := range fields {
			if string(f.Old) == string(f.New) {
				t.Fatalf("of %s and %s: %s does not differ", encoded[0], encoded[1], f.Path)
			}
		}
	})
}
