package draft

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/regogate/regogate/e2e/world"
)

//go:embed config.yaml.tmpl
var configText string

// Names of what init writes, below the directory that it is given.
const (
	ConfigName    = "regogate.yaml"
	RegistryName  = "registry"
	CatalogueName = RegistryName + "/catalogue.yaml"
	PoliciesName  = "policies"
	KeyName       = "demo-key.pem"
	keySetName    = "jwks.json"
)

// configYAML writes the configuration. problems says what is wrong with
// servers, by name.
func configYAML(withKey bool, list []*draft, problems map[string]string) ([]byte, error) {
	t, err := template.New(ConfigName).Parse(configText)
	if err != nil {
		return nil, err
	}
	fields := struct{ DemoKey, Issuer, Audience, KeySet, Registry, Policies, Servers string }{
		"", world.Issuer, world.Audience, keySetName, RegistryName, PoliciesName, serversYAML(list, problems),
	}
	if withKey {
		fields.DemoKey = KeyName
	}
	var b strings.Builder
	if err := t.Execute(&b, fields); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

func serversYAML(list []*draft, problems map[string]string) string {
	var b strings.Builder
	empty := true
	for _, d := range list {
		if d.name != d.from {
			fmt.Fprintf(&b, "  # %s is called %q there.\n", d.name, comment(d.from))
		}
		if d.out != "" {
			fmt.Fprintf(&b, "  # %s is left out: %s\n", d.name, comment(d.out))
			continue
		}
		empty = false
		if text := problems[d.name]; text != "" {
			fmt.Fprintf(&b, "  # When this was written: %s\n", comment(text))
		}
		fmt.Fprintf(&b, "  %s:\n", yamlText(d.name))
		for _, line := range d.yaml {
			b.WriteString("    " + line + "\n")
		}
		b.WriteString("    validate_arguments: true # a call that breaks its tool's inputSchema is not made\n")
	}
	if empty {
		return "servers: {}\n" + b.String()
	}
	return "servers:\n" + b.String()
}
