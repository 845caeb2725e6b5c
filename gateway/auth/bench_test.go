package auth

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkVerify compares a remembered token with one that is verified anew.
func BenchmarkVerify(b *testing.B) {
	for _, name := range []string{"rsa1", "ec", "ed"} {
		path := filepath.Join(b.TempDir(), "jwks.json")
		if err := os.WriteFile(path, keySetOf(b, name), 0o600); err != nil {
			b.Fatal(err)
		}
		c := config("")
		c.Issuers[0].JWKSFile = path
		v, err := New(c, quiet())
		if err != nil {
			b.Fatal(err)
		}
		token := sign(b, signer(name), map[string]any{
			"roles": []string{"payments", "developer"}, "scope": "tools:read tools:list", "tenant": "acme",
		})
		alg := signer(name).Algorithm()
		b.Run(alg+"/verified", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.known.Purge()
				if _, err := v.Verify(b.Context(), token, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(alg+"/remembered", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(alg+"/remembered by all", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := v.Verify(b.Context(), token, nil); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
