package mcp

// The requests of clients, in either era unless it says otherwise.
const (
	MethodInitialize    = "initialize" // legacy
	MethodPing          = "ping"       // legacy; of servers, too
	MethodDiscover      = "server/discover"
	MethodToolsList     = "tools/list"
	MethodToolsCall     = "tools/call"
	MethodPromptsList   = "prompts/list"
	MethodPromptsGet    = "prompts/get"
	MethodResourcesList = "resources/list"
	MethodTemplatesList = "resources/templates/list"
	MethodResourcesRead = "resources/read"
	MethodSubscribe     = "resources/subscribe"   // legacy
	MethodUnsubscribe   = "resources/unsubscribe" // legacy
	MethodListen        = "subscriptions/listen"  // modern
	MethodComplete      = "completion/complete"
	MethodSetLevel      = "logging/setLevel" // legacy
	MethodTasksGet      = "tasks/get"
	MethodTasksResult   = "tasks/result" // legacy
	MethodTasksList     = "tasks/list"   // legacy
	MethodTasksCancel   = "tasks/cancel"
	MethodTasksUpdate   = "tasks/update" // modern
)

// The requests of servers. In the modern era they come as inputRequests.
const (
	MethodCreateMessage = "sampling/createMessage"
	MethodElicit        = "elicitation/create"
	MethodRootsList     = "roots/list"
)

// The notifications of both sides.
const (
	NotifyInitialized      = "notifications/initialized" // legacy
	NotifyCancelled        = "notifications/cancelled"
	NotifyProgress         = "notifications/progress"
	NotifyMessage          = "notifications/message"
	NotifyToolsChanged     = "notifications/tools/list_changed"
	NotifyPromptsChanged   = "notifications/prompts/list_changed"
	NotifyResourcesChanged = "notifications/resources/list_changed"
	NotifyResourceUpdated  = "notifications/resources/updated"
	NotifyRootsChanged     = "notifications/roots/list_changed"         // legacy
	NotifyElicited         = "notifications/elicitation/complete"       // legacy
	NotifyTaskStatus       = "notifications/tasks/status"               // legacy
	NotifyTask             = "notifications/tasks"                      // modern
	NotifyAcknowledged     = "notifications/subscriptions/acknowledged" // modern
)
