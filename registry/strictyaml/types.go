package strictyaml

import (
	"errors"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes. In a file it needs a unit: 512B, 64KiB, 4MiB,
// 1GiB.
type ByteSize int64

type unit struct {
	suffix string
	bytes  int64
}

// sizeUnits is ordered so that the suffix B is tried last and, read
// backwards, the largest unit that divides a size is found first.
func sizeUnits() []unit {
	return []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

// UnmarshalText reads the form that String writes.
func (s *ByteSize) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits() {
		digits, ok := strings.CutSuffix(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || !plainInt(digits) || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		*s = ByteSize(n * u.bytes)
		return nil
	}
	return errors.New("want a size with a unit such as 64KiB or 4MiB")
}

// String writes the size in the largest unit that needs no fraction.
func (s ByteSize) String() string {
	for _, u := range sizeUnits() {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}

// MarshalText writes what String returns.
func (s ByteSize) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secret is a string that prints, logs and encodes as a mask. Convert it to a
// string to use it.
type Secret string

const mask = "[secret]"

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// LogValue keeps the secret out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps the secret out of encoded configurations.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
