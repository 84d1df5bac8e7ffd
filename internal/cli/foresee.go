package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// foresee says what follows when a role of md, which is as it was before, gets this
// number of replicas.
func foresee(md *v1alpha1.ModelDeployment, role string, replicas int32) string {
	r := roleOf(md, role)
	before := render.Replicas(r)
	if before == replicas {
		return fmt.Sprintf("ModelDeployment/%s: role %s has %d replicas already; nothing was changed.\n", md.Name, role, before)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "ModelDeployment/%s: replicas of role %s set from %d to %d.\n", md.Name, role, before, replicas)
	if replicas > before {
		out.WriteString(foreseeMore(md, role, before, replicas))
		return out.String()
	}
	fmt.Fprintf(&out, "To go, each as soon as it is proven idle: %s. Until then a replica stays, and counts as ready.\n",
		enumerateSlots(md, role, before, replicas))
	if before-replicas > retire.MaxTargets {
		fmt.Fprintf(&out, "They go %d at a time.\n", retire.MaxTargets)
	}
	if operation := md.Status.Retirement; operation != nil {
		for i := range operation.Targets {
			if isUnderWay(&operation.Targets[i]) {
				out.WriteString("Another retirement is under way: this one begins when it has ended.\n")
				break
			}
		}
	}
	if md.Spec.Router != nil {
		fmt.Fprintf(&out, "Each process of %s is asked about it first. See that these are all of them and no others:\n    kubectl get pods %s\n", md.Spec.Router.Name, findRouter(md))
	}
	if unprovable := foreseeHeld(md, r, replicas); unprovable != "" {
		out.WriteString("Warning: " + unprovable)
	}
	fmt.Fprintf(&out, "See how it goes:\n    kubectl lastcall explain %s -n %s\n", md.Name, md.Namespace)
	return out.String()
}

// enumerateSlots names the replicas from the highest ordinal down to the lowest.
func enumerateSlots(md *v1alpha1.ModelDeployment, role string, above, lowest int32) string {
	var all []string
	for ordinal := above - 1; ordinal >= lowest; ordinal-- {
		all = append(all, replicaName(md, role, ordinal))
	}
	return enumerate(all)
}

func foreseeMore(md *v1alpha1.ModelDeployment, role string, before, replicas int32) string {
	var kept, leaving, made []string
	for ordinal := before; ordinal < replicas; ordinal++ {
		name := replicaName(md, role, ordinal)
		switch t := targetOf(md, role, ordinal); {
		case t == nil:
			made = append(made, name)
		case isDecided(t):
			leaving = append(leaving, name)
		default:
			kept = append(kept, name)
		}
	}
	var out strings.Builder
	for _, line := range []struct {
		which []string
		what  string
	}{
		{kept, "Kept, and serving again if it was withdrawn"},
		{leaving, "Still leaving, for the decision to delete stands, and made anew after that"},
		{made, "To be made, where it is not there"},
	} {
		if len(line.which) > 0 {
			fmt.Fprintf(&out, "%s: %s.\n", line.what, enumerate(line.which))
		}
	}
	return out.String()
}

func targetOf(md *v1alpha1.ModelDeployment, role string, ordinal int32) *v1alpha1.RetirementTarget {
	if md.Status.Retirement == nil {
		return nil
	}
	for i := range md.Status.Retirement.Targets {
		if t := &md.Status.Retirement.Targets[i]; t.Role == role && t.Ordinal == ordinal {
			return t
		}
	}
	return nil
}

// foreseeHeld says why replicas of the role cannot be proven idle with the present
// spec, and how to change that; empty where they can. Left are as many of the role.
func foreseeHeld(md *v1alpha1.ModelDeployment, role *v1alpha1.Role, left int32) string {
	end := func(reason, when string) string {
		return fmt.Sprintf("A replica that has started is kept, serves on, and ends %s %s with %s.\n", v1alpha1.StateAborted, when, reason)
	}
	afterWithdraw := "after " + seconds(retire.DefaultWithdraw) + " by default"
	switch kind := render.Kind(role); {
	case kind != v1alpha1.Server:
		return fmt.Sprintf("%s replicas work for others, and an idle moment of one proves nothing. ", kind) + end(names.HeldPrefillDecode, "at once") + letGoByHand(md, role)
	case md.Spec.Router == nil && md.Spec.Withdrawal.Direct != v1alpha1.DirectConnections:
		return "with spec.withdrawal.direct: " + string(v1alpha1.DirectHold) + ", nothing can prove that clients reach a replica no more. " +
			end(names.RetireWithdrawalUnobservable, afterWithdraw) + "To take open connections for the proof:\n    " + directConnections(md) + "\n"
	case render.TakenOver(role):
		return "the command of the role is your own, so it is not known how to read its engine. " + end(names.HeldCommandTakenOver, afterWithdraw) + letGoByHand(md, role)
	case md.Spec.Router != nil && md.Spec.Router.Name == v1alpha1.LLMDRouter && left == 0:
		return "a picker that lists no endpoint at all proves nothing, and with all of these withdrawn it lists none unless its pool has others. " +
			end(names.HeldRouterUnread, afterWithdraw) + "Keep one, or delete the ModelDeployment, which waits for its router no longer than that. " + letGoByHand(md, role)
	}
	return ""
}

func directConnections(md *v1alpha1.ModelDeployment) string {
	return fmt.Sprintf(`kubectl patch modeldeployment %s -n %s --type merge -p '{"spec":{"withdrawal":{"direct":"%s"}}}'`, md.Name, md.Namespace, v1alpha1.DirectConnections)
}

// letGoByHand is for replicas that no proof can be of with the present spec.
func letGoByHand(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) string {
	how := "it goes through its drain window"
	if render.TakenOver(role) {
		how = "it has no drain hook"
	}
	return fmt.Sprintf("When you know one idle yourself, delete its Pods; %s, and nobody makes it again:\n    kubectl delete pod -n %s -l %s=%s,%s=%s,%s=ORDINAL\n",
		how, md.Namespace, names.LabelInstance, md.Name, names.LabelComponent, role.Name, names.LabelOrdinal)
}

// budgetOfDrain is how long a replica may take to become idle, and whether that is
// the retirer's default, which its flags can change.
func budgetOfDrain(md *v1alpha1.ModelDeployment) (budget time.Duration, byDefault bool) {
	if s := md.Spec.Retirement.DrainSeconds; s != nil {
		return time.Duration(*s) * time.Second, false
	}
	return retire.DefaultDrain, true
}

func seconds(d time.Duration) string {
	d = d.Round(time.Second)
	if d < 2*time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	return d.String()
}
