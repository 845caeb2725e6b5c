# METADATA
# title: Asked
# description: |-
#   The one thing that a question is about, a tool, a resource, a prompt or a
#   server, and whether the question's method is one that goes with it.
#
#   Whatever goes with using a thing is decided like its use: listing it, completing
#   its arguments, hearing of its changes, the tasks that it started, and what its
#   server sends while it is in use. So each method is here once, with the kinds of
#   things that it is asked about, and mcp.authz has one rule for all.
package mcp.lib.asked

# METADATA
# title: Methods
# description: |-
#   The methods that are decided, and the kinds of things that each goes with.
#   What a server sends is about the thing in use, or the server where there is none.
methods := {
	"tools/call": {"tool"},
	"tasks/get": {"tool"},
	"tasks/result": {"tool"},
	"tasks/list": {"tool"},
	"tasks/cancel": {"tool"},
	"tasks/update": {"tool"},
	"notifications/tasks/status": {"tool"},
	"resources/read": {"resource"},
	"resources/subscribe": {"resource"},
	"notifications/resources/updated": {"resource"},
	"prompts/get": {"prompt"},
	"completion/complete": {"prompt", "resource"},
	"server/discover": {"server"},
	"logging/setLevel": {"server"},
	"sampling/createMessage": {"tool", "resource", "prompt", "server"},
	"elicitation/create": {"tool", "resource", "prompt", "server"},
	"roots/list": {"tool", "resource", "prompt", "server"},
	"notifications/message": {"tool", "resource", "prompt", "server"},
	"notifications/progress": {"tool", "resource", "prompt", "server"},
	"notifications/elicitation/complete": {"tool", "resource", "prompt", "server"},
}

# METADATA
# title: Kinds
# description: The kinds of the things in the input, whatever their values. It is one kind, or the question is denied.
# scope: document
kinds contains "tool" if type_name(input.tool)

kinds contains "resource" if type_name(input.resource)

kinds contains "prompt" if type_name(input.prompt)

kinds contains "server" if type_name(input.server)

# METADATA
# title: Thing
# description: What is asked about; undefined unless there is exactly one thing.
# scope: document
thing := input.tool if {
	kinds == {"tool"}
} else := input.resource if {
	kinds == {"resource"}
} else := input.prompt if {
	kinds == {"prompt"}
} else := input.server if {
	kinds == {"server"}
}

# METADATA
# title: Effect
# description: What using the thing does. Only tools do more than to read.
# scope: document
effect := input.tool.effect if kinds == {"tool"}

effect := "read" if kinds in {{"resource"}, {"prompt"}, {"server"}}

# METADATA
# title: Fits
# description: Whether there is exactly one thing, and the method is one that goes with it.
# scope: document
default fits := false

fits if kinds in _fitting

# What the method goes with, each kind as kinds has it where it is alone.
_fitting := {{kind} | some kind in methods[input.method]}
