package names

// Reasons in the report of kubectl lastcall status, beside the reasons of an
// admission.
const (
	// ReasonNoRecord means that an opted-in Pod was never admitted by lastcall: it is
	// older than the opt-in, or was created while the webhook was away. A new one
	// would get the hook.
	ReasonNoRecord = "NoRecord"
	// ReasonLabelNotOnPods means that LabelDrain is on a workload and not in its Pod
	// template, where alone it is seen.
	ReasonLabelNotOnPods = "LabelNotOnPods"
	// ReasonUnknownLabelValue means that LabelDrain is neither DrainEnabled nor
	// DrainDisabled.
	ReasonUnknownLabelValue = "UnknownLabelValue"
)
