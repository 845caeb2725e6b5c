package gateway

import (
	"github.com/regogate/regogate/gateway/mcp"
)

// eras says in which eras a method exists.
type eras uint8

const (
	legacy eras = 1 << iota
	modern
	both = legacy | modern
)

func (e eras) has(era mcp.Era) bool {
	if era == mcp.Modern {
		return e&modern != 0
	}
	return e&legacy != 0
}

// question is what the policy is asked about a message. input.method is the
// message's own method, save where the row says another.
type question string

const (
	noQuestion    question = ""                      // nothing to decide: it concerns the gateway alone
	aboutItems    question = "each item of the list" // with the method that uses it
	aboutTool     question = "the tool"
	aboutPrompt   question = "the prompt"
	aboutResource question = "the resource"
	aboutRef      question = "the prompt or resource that is completed" // with the method that uses it first
	aboutTask     question = "the tool that started the task"
	aboutServer   question = "each server of the route"
	aboutUse      question = "what is being used, else the server"
	aboutRequest  question = "nothing more: it belongs to a request that was judged"
	aboutLists    question = "each item of the lists that changed"
)

// routing is where a message goes.
type routing string

const (
	toGateway  routing = "the gateway answers"
	toOne      routing = "the one server that has it"
	toSession  routing = "the servers that the session has conversations with"
	toRequest  routing = "the server of the request that it names"
	toCaller   routing = "the response stream of the request that it belongs to, else the session's own"
	toChanged  routing = "those for whom the list has changed"
	toBackends routing = "the gateway takes it"
	nowhere    routing = "dropped"
)

// row is one method of the protocol in one direction, which its table says.
type row struct {
	method   string
	eras     eras
	question question
	routing  routing
	// serve answers a request of a client.
	serve func(x *exchange) *fault
	// take handles a notification of a client.
	take func(x *exchange)
	// during and alone let a notification of a server pass: on the response
	// stream of a request that it belongs to, or by itself.
	during, alone bool
}

// The two tables are every method and notification of every revision from
// 2025-03-26 to 2026-07-28. What is not in them is method not found and goes
// nowhere; no policy can open it.
var fromClients = index([]row{
	{method: mcp.MethodInitialize, eras: legacy, question: aboutServer, routing: toGateway, serve: (*exchange).initialize},
	{method: mcp.MethodPing, eras: legacy, routing: toGateway, serve: (*exchange).ping},
	{method: mcp.MethodDiscover, eras: modern, question: aboutServer, routing: toGateway, serve: (*exchange).discover},
	{method: mcp.MethodToolsList, eras: both, question: aboutItems, routing: toGateway, serve: lister(toolList)},
	{method: mcp.MethodToolsCall, eras: both, question: aboutTool, routing: toOne, serve: (*exchange).callTool},
	{method: mcp.MethodPromptsList, eras: both, question: aboutItems, routing: toGateway, serve: lister(promptList)},
	{method: mcp.MethodPromptsGet, eras: both, question: aboutPrompt, routing: toOne, serve: (*exchange).getPrompt},
	{method: mcp.MethodResourcesList, eras: both, question: aboutItems, routing: toGateway, serve: lister(resourceList)},
	{method: mcp.MethodTemplatesList, eras: both, question: aboutItems, routing: toGateway, serve: lister(templateList)},
	{method: mcp.MethodResourcesRead, eras: both, question: aboutResource, routing: toOne, serve: (*exchange).readResource},
	{method: mcp.MethodSubscribe, eras: legacy, question: aboutResource, routing: toOne, serve: (*exchange).subscribe},
	{method: mcp.MethodUnsubscribe, eras: legacy, routing: toOne, serve: (*exchange).unsubscribe},
	{method: mcp.MethodListen, eras: modern, question: aboutLists, routing: toGateway, serve: func(x *exchange) *fault { return x.long(x.listen) }},
	{method: mcp.MethodComplete, eras: both, question: aboutRef, routing: toOne, serve: (*exchange).complete},
	{method: mcp.MethodSetLevel, eras: legacy, question: aboutServer, routing: toSession, serve: (*exchange).setLevel},
	{method: mcp.MethodTasksGet, eras: both, question: aboutTask, routing: toOne, serve: (*exchange).useTask},
	{method: mcp.MethodTasksResult, eras: legacy, question: aboutTask, routing: toOne, serve: (*exchange).useTask},
	{method: mcp.MethodTasksList, eras: legacy, question: aboutTask, routing: toSession, serve: (*exchange).listTasks},
	{method: mcp.MethodTasksCancel, eras: both, question: aboutTask, routing: toOne, serve: (*exchange).useTask},
	{method: mcp.MethodTasksUpdate, eras: modern, question: aboutTask, routing: toOne, serve: (*exchange).useTask},

	{method: mcp.NotifyInitialized, eras: legacy, routing: nowhere, take: func(*exchange) {}},
	{method: mcp.NotifyCancelled, eras: legacy, question: aboutRequest, routing: toRequest, take: (*exchange).cancelled},
	{method: mcp.NotifyProgress, eras: legacy, question: aboutRequest, routing: toRequest, take: (*exchange).progressed},
	{method: mcp.NotifyRootsChanged, eras: legacy, routing: toSession, take: (*exchange).rootsChanged},
})

// Requests of servers come to modern clients as the inputRequests of a result,
// and are judged there.
var fromServers = index([]row{
	{method: mcp.MethodPing, eras: legacy, routing: toBackends},
	{method: mcp.MethodCreateMessage, eras: both, question: aboutUse, routing: toCaller},
	{method: mcp.MethodElicit, eras: both, question: aboutUse, routing: toCaller},
	{method: mcp.MethodRootsList, eras: both, question: aboutUse, routing: toCaller},

	{method: mcp.NotifyCancelled, eras: legacy, question: aboutRequest, routing: toCaller},
	{method: mcp.NotifyProgress, eras: both, question: aboutUse, routing: toCaller, during: true},
	{method: mcp.NotifyMessage, eras: both, question: aboutUse, routing: toCaller, during: true, alone: true},
	{method: mcp.NotifyResourceUpdated, eras: both, question: aboutResource, routing: toCaller, alone: true},
	{method: mcp.NotifyElicited, eras: legacy, question: aboutUse, routing: toCaller, alone: true},
	{method: mcp.NotifyTaskStatus, eras: legacy, question: aboutTask, routing: toCaller, alone: true},
	{method: mcp.NotifyToolsChanged, eras: both, question: aboutLists, routing: toChanged},
	{method: mcp.NotifyPromptsChanged, eras: both, question: aboutLists, routing: toChanged},
	{method: mcp.NotifyResourcesChanged, eras: both, question: aboutLists, routing: toChanged},
	{method: mcp.NotifyAcknowledged, eras: modern, routing: toBackends},
})

func index(table []row) map[string]row {
	rows := make(map[string]row, len(table))
	for _, r := range table {
		rows[r.method] = r
	}
	return rows
}

func lister(list listing) func(*exchange) *fault {
	return func(x *exchange) *fault { return x.answerList(list) }
}

// serveRequest serves a request of a client by its row of the table.
func (x *exchange) serveRequest() *fault {
	r, ok := fromClients[x.msg.Method]
	if !ok || r.serve == nil || !r.eras.has(x.era) {
		return faultMethod(x.era, x.msg.Method)
	}
	return r.serve(x)
}

// notified takes note of a notification of a client. Those that are not in the
// table are dropped, as JSON-RPC says.
func (x *exchange) notified() {
	if r, ok := fromClients[x.msg.Method]; ok && r.take != nil && r.eras.has(x.era) {
		r.take(x)
	}
}

func (x *exchange) cancelled() { x.g.running.cancel(x.session.ID, x.msg) }

func (x *exchange) rootsChanged() {
	x.g.pool.Tell("", x.talk.Key(), mcp.NewRequest(mcp.ID{}, mcp.NotifyRootsChanged, x.msg.Params))
}
