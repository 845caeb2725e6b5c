package gateway

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/regogate/regogate/gateway/auth"
	"github.com/regogate/regogate/gateway/policy"
)

// subjects remembers the policy's form of principals. The verifier gives the
// same principal for a token that it remembers, so the claims of a token are
// converted once and not once a request.
type subjects struct {
	known *lru.Cache[*auth.Principal, *policy.Subject]
}

// knownSubjects is as many principals as the verifier remembers tokens.
const knownSubjects = 10_000

func newSubjects() *subjects {
	known, err := lru.New[*auth.Principal, *policy.Subject](knownSubjects)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return &subjects{known: known}
}

func (s *subjects) of(p *auth.Principal) (*policy.Subject, error) {
	if subject, ok := s.known.Get(p); ok {
		return subject, nil
	}
	subject, err := policy.NewSubject(p.Claims)
	if err != nil {
		return nil, err
	}
	s.known.Add(p, subject)
	return subject, nil
}
