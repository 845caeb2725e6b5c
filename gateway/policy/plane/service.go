package plane

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/open-policy-agent/opa/v1/keys"
	"github.com/open-policy-agent/opa/v1/plugins/rest"
)

// service is one of the configured services with the credentials it had before
// the configuration was rewritten.
//
// OPA's credentials write to themselves, when a client is made with them and when
// they fetch a token, and lock nothing. So each is used by one goroutine at a time,
// and there are as many as are used at once: nobody waits for a token that another
// fetches.
type service struct {
	name, raw string
	keys      map[string]*keys.Config
	log       logger
	url       string
	clients   map[int64]*http.Client // by header timeout; guarded by wire.mu

	mu   sync.Mutex // guards what follows
	idle []rest.HTTPAuthPlugin
}

// newService takes a service's configuration in JSON and the keys that it may
// name. Nothing is reached or read.
func newService(name, raw string, all map[string]*keys.Config, log logger) (*service, error) {
	s := &service{name: name, raw: raw, keys: all, log: log}
	conf, _, err := s.decode()
	if err != nil {
		return nil, err
	}
	s.url = conf.URL
	return s, nil
}

// decode makes credentials that nobody else has.
func (s *service) decode() (rest.Config, rest.HTTPAuthPlugin, error) {
	c, err := rest.New([]byte(s.raw), s.keys, rest.Name(s.name), rest.Logger(s.log))
	if err != nil {
		return rest.Config{}, nil, fmt.Errorf("services.%s: %w", s.name, err)
	}
	auth, err := c.Config().AuthPlugin(nil)
	if err != nil {
		return rest.Config{}, nil, fmt.Errorf("services.%s.credentials: %w", s.name, err)
	}
	return *c.Config(), auth, nil
}

// connect makes a client and the credentials that it was made with, which are
// ready for requests of any client. A timeout of nil is the configured one; it is
// in seconds.
func (s *service) connect(timeout *int64) (*http.Client, rest.HTTPAuthPlugin, error) {
	conf, auth, err := s.decode()
	if err != nil {
		return nil, nil, err
	}
	if timeout != nil {
		conf.ResponseHeaderTimeoutSeconds = timeout
	}
	made, err := auth.NewClient(conf)
	if err != nil {
		return nil, nil, fmt.Errorf("service %q: %w", s.name, err)
	}
	return made, auth, nil
}

// sign gives a request the service's credentials. It may be called concurrently.
func (s *service) sign(r *http.Request) error {
	auth, err := s.borrow()
	if err != nil {
		return err
	}
	defer s.give(auth)
	return auth.Prepare(r)
}

// borrow prefers the credentials that were used last: their token is the newest.
func (s *service) borrow() (rest.HTTPAuthPlugin, error) {
	s.mu.Lock()
	last := len(s.idle) - 1
	if last >= 0 {
		defer s.mu.Unlock()
		auth := s.idle[last]
		s.idle = s.idle[:last]
		return auth, nil
	}
	s.mu.Unlock()
	_, auth, err := s.connect(nil)
	return auth, err
}

func (s *service) give(auth rest.HTTPAuthPlugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, auth)
}

// close lets go of connections that nobody uses. wire.mu is held.
func (s *service) close() {
	for _, c := range s.clients {
		if t, ok := c.Transport.(*trip); ok {
			if idle, ok := t.base.(interface{ CloseIdleConnections() }); ok {
				idle.CloseIdleConnections()
			}
		}
	}
}
