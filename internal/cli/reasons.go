package cli

import (
	"fmt"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// meaning is what a reason of a target tells a person. The words in braces in its
// advice are filled in by fill.
type meaning struct {
	// says is a clause: what is so.
	says string
	// needs is the evidence that is missing; empty where nothing is waited for.
	needs string
	// wait says what waiting brings; empty where that is nothing but the end of the
	// time. It is no way out for a replica that was given up.
	wait string
	// out are the ways out that are about this reason alone.
	out []advice
	// lasting is set where another try ends the same way.
	lasting bool
}

// advice is something a person can do. Without commands it is done elsewhere, or by
// waiting.
type advice struct {
	Text     string   `json:"text"`
	Commands []string `json:"commands"`
	// ofNext is about the next retirement: no help for a deletion, which has none.
	ofNext bool
}

func do(text string, commands ...string) advice { return advice{Text: text, Commands: commands} }

func next(text string, commands ...string) advice {
	return advice{Text: text, Commands: commands, ofNext: true}
}

const (
	describePod    = "kubectl describe pod -n {namespace} {pod}"
	engineLogs     = "kubectl logs -n {namespace} {pod} -c " + names.MainContainer + " --tail=100"
	editDeployment = "kubectl edit modeldeployment {name} -n {namespace}"
	readMetrics    = "kubectl get --raw /api/v1/namespaces/{namespace}/pods/{metrics} > metrics.txt"
	judgeMetrics   = "kubectl lastcall gauges --engine {engine} -f metrics.txt"
	routerPods     = "kubectl get pods {router} -o wide"
	routerLogs     = "kubectl logs {router} --prefix --tail=50"
	retirerAccount = "--as=system:serviceaccount:lastcall-system:" + names.Retirer
)

var (
	seePod      = do("See how the Pod and its engine do:", describePod, engineLogs)
	seeRetirer  = do("See whether the retirer runs, and what it says:", retirerPods, retirerLogs)
	seeMetrics  = do("Read the page that the engine serves, and judge it as the retirer does:", readMetrics, judgeMetrics)
	moreTime    = next("To allow longer generations, here twenty minutes; it counts from the next retirement on:", `kubectl patch modeldeployment {name} -n {namespace} --type merge -p '{"spec":{"retirement":{"drainSeconds":1200,"totalSeconds":1260}}}'`)
	seeRouter   = do("See the Pods that are asked, all of them and no others have to be the router's:", routerPods)
	stopTraffic = do("Take it out of what sends it requests, and let it go by hand when it is done.")
)

// idleReads is the proof that Draining waits for.
const idleReads = "at least two idle reads in a row, over at least {refresh}, by which its gauges can lag"

// aCompleteRead is what is missing after a read that told nothing.
const aCompleteRead = "a complete read of its gauges, and then " + idleReads

// marked is what Disqualified waits for.
const marked = "the label " + names.LabelServing + ": \"" + names.Withdrawn + "\" on every Pod of it"

// meanings are what the reasons of a target tell. Every reason of names.Held* and
// names.Retire*, and of names.Read*, which a failed read can have, is in it.
var meanings = map[string]meaning{
	names.HeldEndpointsRemain: {
		says:  "an EndpointSlice still has one of its Pods, so clients may be sent to it",
		needs: "no EndpointSlice names one of its Pods",
		out: []advice{do("See which Service keeps it. One of your own has to select the label "+names.LabelServing+": \""+names.Serving+"\" too:",
			"kubectl get endpointslices -n {namespace} -o wide", "kubectl get services -n {namespace} -o wide")},
	},
	names.HeldConnectionsOpen: {
		says:  "clients are connected to its engine's port, and could send on what they have open",
		needs: "no connection of a client in any read over 6 s",
		out: []advice{
			do("See who is connected, addresses in hexadecimal; a client that is restarted, or closes what is idle, lets go:",
				"kubectl exec -n {namespace} {pod} -c "+names.MainContainer+" -- cat /proc/net/tcp /proc/net/tcp6"),
			do("One that sends no requests, such as Prometheus, can be named in spec.withdrawal.peers:", editDeployment),
		},
	},
	names.HeldConnectionsUnread: {
		says:  "the connections to its engine's port have not been read for long enough",
		needs: "reads over 6 s that see no connection of a client",
		out:   []advice{seePod, seeRetirer},
		wait:  "Wait: it takes about 15 s. If it stays so, the reads fail.",
	},
	names.HeldRouterNotFound: {
		says:  "no Pod of its router can be found, so nothing says who could send to it",
		needs: "a Pod that spec.router.podSelector selects",
		out: []advice{do("See what spec.router selects, and correct its podSelector and namespace, or start the router:",
			routerPods, editDeployment)},
	},
	names.HeldRouterNotAsked: {
		says:  "its router was not asked yet",
		needs: "an answer of every process of the router",
		out:   []advice{seeRetirer},
		wait:  "Wait a few seconds. It is no fault unless it stays so.",
	},
	names.HeldRouterUnread: {
		says:  "a process of its router could not be asked, or does not say enough",
		needs: "an answer of every process of the router",
		out: []advice{
			seeRouter,
			do("No answer: spec.router.port is another one, or a NetworkPolicy does not let the retirer in (docs/routers.md has one that does), or it wants HTTPS, which spec.router.tls asks for:", editDeployment),
			do("401 or 403: it wants a token. Put one into a Secret, name that in spec.router.secretName, and let the retirer get it (docs/routers.md has the three commands)."),
			do("It lists no worker at all: of llm-d that proves nothing, so keep one replica; of the others it counts for the retirer that has seen the replica on the list before. It is listed again by now, so retry."),
		},
	},
	names.HeldRouterSelects: {
		says:  "a process of its router can still choose it",
		needs: "every process of the router to say that it cannot",
		out:   []advice{do("{leavesalone}", routerLogs)},
	},
	names.HeldRouterReturns: {
		says:  "a process of its router cannot choose it now, and would choose it again by itself",
		needs: "a router that leaves out what has the label " + names.LabelServing + ": \"" + names.Withdrawn + "\", also when it looks around or restarts",
		out: []advice{
			do("The router has to select its workers with {followslabel}. Where that is a flag, it is only seen on the command line of its container: a shell around it, a variable from elsewhere or a configuration file hides it."),
			do("A replica that is not Ready is left out for that too, and then nothing shows that the label keeps it out: wait until it is Ready.", "kubectl get pod -n {namespace} {pod}"),
		},
	},
	names.HeldRouterHolds: {
		says:  "a process of its router may hold a request that has chosen it",
		needs: "the time to pass in which that would be sent, or a count of 0 that can be relied on",
		out:   []advice{do("{holdsnothing}", routerPods)},
		wait:  "Wait: most routers send a request within seconds or never.",
	},
	names.HeldRecentDispatches: {
		says:  "a process of its router has sent it a request a moment ago",
		needs: "no request for a while",
		out:   []advice{do("If it does not stop, that process sends to what it does not list, and its log says more:", routerLogs)},
		wait:  "Wait: it goes by itself when none is sent any more.",
	},
	names.HeldRouterBypassed: {
		says:  "something may choose it without asking its router",
		needs: "a router that nothing goes past",
		out: []advice{
			do("The gateway of an InferencePool with failureMode FailOpen chooses by itself when its router does not answer. Make it FailClose (in v1alpha2 it is in extensionRef), or let the replica go by hand:",
				"kubectl get inferencepools -n {namespace} -o yaml",
				`kubectl patch inferencepool POOL -n {namespace} --type merge -p '{"spec":{"endpointPickerRef":{"failureMode":"FailClose"}}}'`),
			do("If the pools could not be listed, helm upgrade brings the chart's ClusterRole back:",
				"kubectl auth can-i list inferencepools.inference.networking.k8s.io -n {namespace} "+retirerAccount),
		},
	},
	names.HeldServingRequests: {
		says:  "its engine has requests in flight",
		needs: "the end of its requests, and then " + idleReads,
		out:   []advice{moreTime},
		wait:  "Wait: it goes by itself when they are done.",
	},
	names.HeldProvingIdle: {
		says:  "its engine is idle, and not for long enough yet to outlast the lag of its gauges",
		needs: idleReads,
		wait:  "Wait: it goes by itself in about {refresh}.",
	},
	names.HeldNotReadYet: {
		says:  "its engine was not read yet",
		needs: idleReads,
		out:   []advice{seePod, seeRetirer},
		wait:  "Wait a few seconds. It is no fault unless it stays so.",
	},
	names.HeldReadFailed: {
		says:  "its engine could not be read: its container does not run, its /metrics does not answer, or the node does not let the retirer in",
		needs: aCompleteRead,
		out:   []advice{seePod, seeRetirer},
	},
	names.HeldExecForbidden: {
		says:  "the retirer is not allowed to read it",
		needs: "permission for pods/exec, and then " + aCompleteRead,
		out: []advice{do("Where one of these does not say yes, helm upgrade brings the chart's ClusterRole back, and an admission policy against exec needs an exception for the retirer:",
			"kubectl auth can-i get pods --subresource=exec -n {namespace} "+retirerAccount,
			"kubectl auth can-i create pods --subresource=exec -n {namespace} "+retirerAccount)},
	},
	names.HeldReadTimedOut: {
		says:  "a read of its engine did not end in time",
		needs: aCompleteRead,
		out:   []advice{do("An engine that does not answer in 2 s hangs or is overloaded, or its node is:", describePod, engineLogs), seeRetirer},
	},
	names.HeldReadIncomplete: {
		says:  "a read of its engine was cut short, so a gauge may be missing from it",
		needs: aCompleteRead,
		out:   []advice{seeMetrics, seeRetirer},
	},
	names.HeldContainerRestarted: {
		says:  "its engine was started again after the retirement had begun, and the proof is about the one before",
		needs: "the engine that was bound; it is gone, so this attempt ends without a proof and the next binds the new one",
		out:   []advice{do("See why it restarted:", "kubectl logs -n {namespace} {pod} -c "+names.MainContainer+" --previous --tail=100", describePod)},
	},
	names.HeldCommandTakenOver: {
		says:    "its command line is your own, so it is not known how to read its engine",
		needs:   "a way to read it, which lastcall does not have",
		out:     []advice{stopTraffic},
		lasting: true,
	},
	names.HeldAnsweringMemberUnknown: {
		says:  "which of its Pods answers for it cannot be said: none or several have the number 0, some are missing, or they run different engines",
		needs: "as many Pods as " + names.LabelSize + " says, one of them with " + names.LabelMember + ": \"0\"",
		out: []advice{do("Compare the labels:",
			"kubectl get pods -n {namespace} -l "+names.LabelInstance+"={name},"+names.LabelComponent+"={role} -L "+names.LabelOrdinal+","+names.LabelMember+","+names.LabelSize)},
	},
	names.HeldNodeUnreachable: {
		says:  "its node does not answer, so nobody can tell whether its engine still works",
		needs: "the node, and then " + aCompleteRead,
		out: []advice{
			do("See the node:", "kubectl describe node {node}"),
			do("If the machine is off for good, say so: Kubernetes then removes its Pods, and the retirement goes on without them:",
				"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
		},
	},
	names.HeldPrefillDecode: {
		says:    "it prefills or decodes for others, and an idle moment of its own proves nothing",
		needs:   "a proof that lastcall does not know for such a replica",
		out:     []advice{stopTraffic},
		lasting: true,
	},
	names.HeldNoGaugeList: {
		says:    "lastcall does not know the gauges of its engine",
		needs:   "a list of its gauges: vLLM and SGLang have one",
		out:     []advice{stopTraffic},
		lasting: true,
	},
	names.ReadGaugesMissing: {
		says:  "its /metrics lacks a gauge that tells work in flight",
		needs: aCompleteRead,
		out:   []advice{do("See docs/engines.md for flags that take gauges away, such as --disable-log-stats."), seeMetrics},
	},
	names.ReadInvalidValue: {
		says:  "a gauge of its engine has a value that is no number of requests",
		needs: aCompleteRead,
		out:   []advice{seeMetrics},
	},
	names.ReadNotMetrics: {
		says:  "what answers at its metrics address is not a metrics page",
		needs: aCompleteRead,
		out:   []advice{do("SGLang needs --enable-metrics; a proxy in front of the engine must not have the engine's port."), seeMetrics},
	},
	names.ReadTooLarge: {
		says:  "its /metrics is larger than the 1 MiB that is read",
		needs: aCompleteRead,
		out:   []advice{seeMetrics},
	},
	names.RetireIdle: {says: "it was proven idle"},
	names.RetireNeverStarted: {
		says: "its engine was never started, so there is nothing to drain",
	},
	names.RetireNotRunning: {
		says: "its engine does not run or still loads its model, so there is nothing to drain",
	},
	names.RetireOrphaned: {
		says: "the ModelDeployment was deleted and its Pods were to be left behind",
	},
	names.RetireNamespaceTerminating: {
		says: "its namespace is being deleted, and everything in it goes",
	},
	names.RetireMemberReplaced: {
		says: "its Pods are gone, or leave, by somebody else's doing",
	},
	names.RetireWithdrawalUnobservable: {
		says:  "nothing can prove that clients reach it no more",
		needs: "spec.withdrawal.direct: " + string(v1alpha1.DirectConnections) + ", or a spec.router that can be asked",
		out:   []advice{next("Take it for the proof that it has left the Services and no client has a connection to it:", "{connections}")},
	},
	names.RetireNotMarked: {
		says:  "its Pods could not be given the label " + names.LabelServing + ": \"" + names.Withdrawn + "\" in time",
		needs: marked,
		out: []advice{
			do("The retirer has to be allowed to label it. Where this does not say yes, helm upgrade brings the chart's ClusterRole back:", "kubectl auth can-i patch pods -n {namespace} "+retirerAccount),
			seeRetirer,
		},
	},
	names.RetireMarkLost: {
		says:  "somebody took the label " + names.LabelServing + ": \"" + names.Withdrawn + "\" from it; it is set again",
		needs: marked,
		out:   []advice{do("If it happens again, see who writes the label:", "kubectl get pod -n {namespace} {pod} --show-managed-fields -o yaml")},
	},
	names.RetireNotProvenAgain: {
		says: "a delete of it was refused, and it has not been proven idle again in time",
		out:  []advice{do("See who refuses the delete of its Pods: an admission webhook or policy says so to everybody. A dry run deletes nothing:", "kubectl delete pod -n {namespace} {pods} --dry-run=server")},
	},
	names.RetireSettlingOverran: {
		says: "its Pods are still there although their time is over; the deletes stand",
		out: []advice{
			do("A finalizer of another tool on the Pod, or a node that does not answer, keeps it:", describePod),
			do("If its node is gone for good, and so nothing of it runs on:", "kubectl delete pod -n {namespace} {pods} --force --grace-period=0"),
		},
	},
	names.RetireCancelled: {says: "the spec wants it again"},
	names.RetireStateUnknown: {
		says: "another version of lastcall wrote its state, so it was left alone",
		out:  []advice{do("See which versions of the retirer run:", retirerPods+" -o wide")},
	},
}

// meaningOf is what a reason tells; of one that this version does not know, the
// reason itself.
func meaningOf(reason string) meaning {
	if m, ok := meanings[reason]; ok {
		return m
	}
	return meaning{
		says: fmt.Sprintf("the reason is %s, which this version of kubectl lastcall does not know", reason),
		out:  []advice{do("Take the kubectl lastcall of the version that runs in the cluster. Until then:", describePod, retirerLogs)},
	}
}
