package validate

// The messages of the rules that the schema has too, in the same words; see the
// XValidation markers in api/v1alpha1.
const (
	// graceMessage's numbers are drain.MinGraceSeconds, MaxGraceSeconds, Settle,
	// ExitReserve and DefaultGraceSeconds.
	graceMessage = "must be 15 to 3600 seconds: 5 serve late requests, then work finishes, and the last 5 are for the exit; more than an hour stalls node drains. 30 suits chat; else take the longest generation plus 10"

	serviceNameMessage     = "must start with a letter, end with a letter or digit, and hold only lower-case letters, digits and dashes: it becomes the name of a Service"
	podNameMessage         = "a role's name is too long with metadata.name: its Pods are NAME-ROLE-ORDINAL, above size 1 NAME-ROLE-ORDINAL-MEMBER, at most 63 characters with the highest ordinal, 1023; shorten one of the two"
	imageMessage           = "an image is needed here or in every role"
	directMessage          = "direct: Connections is for deployments without a router: with one, the router itself is asked whether it can still choose a replica; remove one of the two"
	totalMessage           = "must be at least drainSeconds: it bounds the whole retirement, of which draining is a part; drainSeconds plus 60 leaves room for the rest"
	peerMessage            = "needs exactly one of cidr and podSelector"
	peerNamespaceMessage   = "goes with podSelector only"
	cidrMessage            = "must be a block of addresses such as 10.0.3.0/24; a single address ends in /32, or /128 for IPv6"
	routerSelectorMessage  = "without labels it would select every Pod of the namespace, and each would have to answer as a router"
	routerNamespaceMessage = "must be the name of a namespace: lower-case letters, digits and dashes, with a letter or digit at each end"
	secretNameMessage      = "must be the name of a Secret: lower-case letters, digits, dashes and dots, with a letter or digit at each end of every part"
	serverNameMessage      = "must be a DNS name in lower case, such as router.team-a.svc, or an IP address, without scheme and port: the name that the router's certificate has"
	proxyPortMessage       = "must differ from the engine's port: both listen in one Pod"

	frozenEngineMessage  = "is frozen: running replicas are measured by the gauges of the engine they were created with; make a new ModelDeployment for another engine"
	frozenKindMessage    = "is frozen: a replica that is running keeps the part it was created for; add a role of the new kind and drop this one"
	frozenSizeMessage    = "is frozen: the members of a running replica were told its size when they started; add a role of the new size and drop this one"
	frozenCommandMessage = "is frozen: it decides who owns the command line of running replicas; add a role with the new command and drop this one"
)
