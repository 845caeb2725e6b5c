package plane

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/keys"
)

// bundleName keeps names usable as a directory and as the head of a module's id.
var bundleName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$`)

// Check reports the problems of an OPA configuration in JSON, one a line, each
// with its path and how to mend it. Nothing is reached or read.
func Check(config []byte) error {
	doc, err := parse(config)
	if err != nil {
		return err
	}
	return errors.Join(check(doc)...)
}

func parse(config []byte) (map[string]any, error) {
	doc := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(config))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("OPA's configuration must be one JSON object: %w", err)
	}
	if doc == nil {
		doc = map[string]any{}
	}
	list, ok := doc["services"].([]any)
	if !ok {
		return doc, nil
	}
	// OPA takes a list too. From here on there are names only.
	byName := map[string]any{}
	for i, v := range list {
		s, _ := v.(map[string]any)
		name, _ := s["name"].(string)
		if name == "" {
			return nil, fmt.Errorf("services.%d.name: missing; name the service", i)
		}
		if byName[name] != nil {
			return nil, fmt.Errorf("services.%d.name: %q is there twice", i, name)
		}
		byName[name] = s
	}
	doc["services"] = byName
	return doc, nil
}

// section is the object below name, empty where there is none.
func section(doc map[string]any, name string) map[string]any {
	m, _ := doc[name].(map[string]any)
	return m
}

func str(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

type checker struct {
	doc      map[string]any
	problems []error
}

func (c *checker) report(at, what string) {
	c.problems = append(c.problems, fmt.Errorf("%s: %s", at, what))
}

// check needs a parsed configuration. The rules about values are only looked at
// where the shape is right.
func check(doc map[string]any) []error {
	c := &checker{doc: doc}
	configShape.check("", doc, c.report)
	if len(c.problems) > 0 {
		return c.problems
	}
	c.services()
	c.keys()
	c.bundles()
	c.discovery()
	for _, name := range []string{"status", "decision_logs"} {
		if m, ok := doc[name]; ok {
			c.sink(name, m.(map[string]any))
		}
	}
	if id := str(section(doc, "labels"), "version"); id != "" {
		c.report("labels.version", "is set by OPA: remove it")
	}
	return c.problems
}

func (c *checker) services() {
	services := section(c.doc, "services")
	for _, name := range slices.Sorted(maps.Keys(services)) {
		s, at := section(services, name), "services."+name
		if n := str(s, "name"); n != "" && n != name {
			c.report(at+".name", "differs from the name it has above: remove it")
		}
		u, err := url.Parse(str(s, "url"))
		switch {
		case str(s, "url") == "":
			c.report(at+".url", "missing; give the service's base URL")
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			c.report(at+".url", "must be an absolute http or https URL")
		case u.User != nil:
			c.report(at+".url", "holds a user: put it below credentials")
		case u.RawQuery != "" || u.Fragment != "":
			c.report(at+".url", "must have no query and no fragment")
		}
		if len(section(s, "credentials")) > 1 {
			c.report(at+".credentials", "only one kind may be given")
		}
		if v, ok := s["response_header_timeout_seconds"].(json.Number); ok {
			if n, _ := v.Int64(); n < 1 {
				c.report(at+".response_header_timeout_seconds", "must be 1 or more")
			}
		}
	}
}

func (c *checker) keys() {
	all := section(c.doc, "keys")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		k, at := section(all, name), "keys."+name
		alg := str(k, "algorithm")
		if alg == "" {
			alg = "RS256"
		}
		key := str(k, "key")
		switch {
		case !keys.IsSupportedAlgorithm(alg):
			c.report(at+".algorithm", fmt.Sprintf("%q is not known; use RS256, ES256, PS256 or HS256 or their longer kin", alg))
		case strings.HasPrefix(alg, "HS") && key == "":
			// OPA would verify with the empty secret, which anybody can sign with.
			c.report(at+".key", "missing; a key of "+alg+" needs its secret there")
		case key == "" && str(k, "private_key") == "":
			c.report(at+".key", "missing; give the public key in PEM")
		case key != "" && !strings.HasPrefix(alg, "HS"):
			if what := publicKey(key); what != "" {
				c.report(at+".key", what)
			}
		}
	}
}

// publicKey says what is wrong with a PEM public key, "" when nothing is.
func publicKey(key string) string {
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		return "is no PEM: give the public key itself, from -----BEGIN PUBLIC KEY----- on"
	}
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		_, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		_, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		_, err = x509.ParseCertificate(block.Bytes)
	default:
		return fmt.Sprintf("holds a %s: give the public key", block.Type)
	}
	if err != nil {
		return "cannot be read as a public key: write it anew with `openssl pkey -pubout`"
	}
	return ""
}

// service reports an unknown or unnamed service.
func (c *checker) service(at string, m map[string]any, needed bool) {
	services := section(c.doc, "services")
	known := strings.Join(slices.Sorted(maps.Keys(services)), ", ")
	name := str(m, "service")
	switch {
	case name != "" && services[name] == nil:
		c.report(at+".service", fmt.Sprintf("%q is not below services; known: %s", name, cmp.Or(known, "none")))
	case name == "" && needed && len(services) == 0:
		c.report(at+".service", "missing, and there is none below services: add one and name it")
	case name == "" && needed && len(services) > 1:
		c.report(at+".service", "missing; name one of "+known)
	}
}

func (c *checker) bundles() {
	all := section(c.doc, "bundles")
	names := slices.Sorted(maps.Keys(all))
	from := map[string]string{}
	for _, name := range names {
		b, at := section(all, name), "bundles."+name
		if !bundleName.MatchString(name) {
			c.report(at, "the name may have letters, digits and _ . - and single slashes, and no part may begin with a dot")
		}
		if i := slices.IndexFunc(names, func(other string) bool { return strings.HasPrefix(name, other+"/") }); i >= 0 {
			c.report(at, fmt.Sprintf("the name begins with that of bundle %q: their files could not be told apart", names[i]))
		}
		c.source(at, b)
		where := str(b, "service") + " " + resourceOf(name, b)
		if other, ok := from[where]; ok {
			c.report(at+".resource", fmt.Sprintf("is that of bundle %q as well", other))
		}
		from[where] = name
		if v, ok := b["size_limit_bytes"].(json.Number); ok {
			if n, _ := v.Int64(); n < 1 {
				c.report(at+".size_limit_bytes", "must be 1 or more")
			}
		}
	}
}

func resourceOf(name string, b map[string]any) string {
	return strings.Trim(cmp.Or(str(b, "resource"), "bundles/"+name), "/")
}

func (c *checker) discovery() {
	v, ok := c.doc["discovery"]
	if !ok {
		return
	}
	d := v.(map[string]any)
	if str(d, "resource") == "" {
		c.report("discovery.resource", "missing; give the path of the discovery bundle")
	}
	c.source("discovery", d)
	if b := section(section(c.doc, "bundles"), "discovery"); b["persist"] == true && d["persist"] == true {
		c.report("bundles.discovery", "its persisted copy would be that of discovery: give the bundle another name")
	}
	if trigger := str(section(section(c.doc, "decision_logs"), "reporting"), "trigger"); trigger == "immediate" {
		c.report("decision_logs.reporting.trigger", "must be periodic beside discovery")
	}
}

// source checks what bundles and discovery have in common.
func (c *checker) source(at string, m map[string]any) {
	c.service(at, m, true)
	if r := str(m, "resource"); strings.Contains(r, "://") {
		c.report(at+".resource", "must be a path below the service's URL; for files on this machine use policy.dir")
	} else if _, err := url.Parse("http://host/" + strings.Trim(r, "/")); err != nil {
		c.report(at+".resource", "is no path of a URL")
	}
	c.trigger(at, m, "periodic")
	if m["persist"] == true && str(c.doc, "persistence_directory") == "" {
		c.report("persistence_directory", "missing; "+at+".persist needs a directory of its own")
	}
	c.delays(at+".polling", section(m, "polling"))
	v, ok := m["signing"]
	if !ok {
		return
	}
	id := str(v.(map[string]any), "keyid")
	switch {
	case !verifies(c.doc):
		c.report(at+".signing", "there is no public key below keys to verify with: add it")
	case id != "" && str(section(section(c.doc, "keys"), id), "key") == "":
		c.report(at+".signing.keyid", fmt.Sprintf("%q is no public key below keys", id))
	}
}

func (c *checker) trigger(at string, m map[string]any, allowed ...string) {
	if t := str(m, "trigger"); t != "" && !slices.Contains(allowed, t) {
		c.report(at+".trigger", fmt.Sprintf("%q is not taken here; use %s", t, strings.Join(allowed, " or ")))
	}
}

func (c *checker) delays(at string, m map[string]any) {
	value := func(name string) (int64, bool) {
		n, ok := m[name].(json.Number)
		v, _ := n.Int64()
		if ok && (v < 1 || v > 365*24*3600) {
			c.report(at+"."+name, "must be from 1 second to a year")
		}
		return v, ok
	}
	least, hasLeast := value("min_delay_seconds")
	most, hasMost := value("max_delay_seconds")
	value("long_polling_timeout_seconds")
	switch {
	case hasLeast != hasMost:
		c.report(at, "min_delay_seconds and max_delay_seconds go together: give both")
	case hasLeast && most < least:
		c.report(at+".max_delay_seconds", "must not be less than min_delay_seconds")
	}
}

func (c *checker) sink(at string, m map[string]any) {
	c.service(at, m, m["console"] != true)
	if at == "status" {
		c.trigger(at, m, "periodic")
		return
	}
	reporting := section(m, "reporting")
	c.trigger(at+".reporting", reporting, "periodic", "immediate")
	c.delays(at+".reporting", reporting)
}

// verifies says whether there is a key that bundles are verified with.
func verifies(doc map[string]any) bool {
	for _, v := range section(doc, "keys") {
		if m, ok := v.(map[string]any); ok && str(m, "key") != "" {
			return true
		}
	}
	return false
}
