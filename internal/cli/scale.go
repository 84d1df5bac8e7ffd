package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

type scaleFlags struct {
	at       cluster
	role     string
	replicas int32
	timeout  time.Duration
}

func newScale(s Streams) *cobra.Command {
	var f scaleFlags
	cmd := &cobra.Command{
		Use:   "scale NAME --role ROLE --replicas N",
		Short: "Change the replicas of a role, and say what will happen",
		Long: fmt.Sprintf(`Sets the replicas of one role of a ModelDeployment, 0 to %d, and says which replicas
go or come. Those with the highest ordinals go, each when it is proven idle; the command
does not wait for it. It warns where no such proof is possible with the present spec.

Exit codes: 0 done, 1 the role is not there or the cluster refused, 3 the command could
not be run as asked.`, validate.MaxReplicas),
		Example: `  kubectl lastcall scale qwen --role server --replicas 1
  kubectl lastcall scale qwen -n team-a --role server --replicas 4`,
		Args: oneName("scale"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.role == "":
				return usage("--role is missing: name the role to scale; kubectl lastcall status %s lists them", args[0])
			case !cmd.Flags().Changed("replicas"):
				return usage("--replicas is missing: how many replicas of role %s there should be, 0 to %d", f.role, validate.MaxReplicas)
			case f.replicas < 0 || f.replicas > validate.MaxReplicas:
				return usage("--replicas %d: must be 0 to %d", f.replicas, validate.MaxReplicas)
			case f.timeout <= 0:
				return badTimeout(f.timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return f.run(ctx, s, args[0])
		},
	}
	f.at.addFlags(cmd)
	cmd.Flags().StringVar(&f.role, "role", "", "the role")
	cmd.Flags().Int32Var(&f.replicas, "replicas", 0, fmt.Sprintf("how many replicas it should have, 0 to %d", validate.MaxReplicas))
	addTimeout(cmd, &f.timeout)
	return cmd
}

func (f *scaleFlags) run(ctx context.Context, s Streams, name string) error {
	c, namespace, err := f.at.connect()
	if err != nil {
		return err
	}
	md, err := readModelDeployment(ctx, c, namespace, name)
	if err != nil {
		return exit{exitFailed, err}
	}
	patch, err := scalePatch(md, f.role, f.replicas)
	if err != nil {
		return exit{exitFailed, err}
	}
	if patch != nil {
		if err := f.patch(ctx, c, md, patch); err != nil {
			return exit{exitFailed, err}
		}
	}
	return write(s.Out, []byte(foresee(md, f.role, f.replicas)))
}

// patch changes the object in the cluster, and leaves md as it was read.
func (f *scaleFlags) patch(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment, patch []byte) error {
	err := c.Patch(ctx, md.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
	if err == nil {
		return nil
	}
	// The server gives a failed test the same code as a refused value. Which it was
	// shows in what is there now.
	if apierrors.IsInvalid(err) {
		if now, failed := readModelDeployment(ctx, c, md.Namespace, md.Name); failed == nil {
			if changed := changedMeanwhile(md, now, f.role); changed != "" {
				return fmt.Errorf("nothing was changed: %s; look again, and give the command again if you still want it", changed)
			}
		}
	}
	return fmt.Errorf("setting the replicas of role %s of ModelDeployment %q in namespace %s to %d: %w", f.role, md.Name, md.Namespace, f.replicas, err)
}

func changedMeanwhile(read, now *v1alpha1.ModelDeployment, role string) string {
	before, after := roleOf(read, role), roleOf(now, role)
	switch {
	case after == nil:
		return fmt.Sprintf("role %s was dropped meanwhile", role)
	case render.Replicas(before) != render.Replicas(after):
		return fmt.Sprintf("the replicas of role %s were %d when they were read, and somebody has set them to %d meanwhile", role, render.Replicas(before), render.Replicas(after))
	case roleIndex(read, role) != roleIndex(now, role):
		return "somebody has changed the list of roles meanwhile"
	}
	return ""
}

func roleIndex(md *v1alpha1.ModelDeployment, name string) int {
	return slices.IndexFunc(md.Spec.Roles, func(r v1alpha1.Role) bool { return r.Name == name })
}

// scalePatch is the change as a JSON patch, which the server refuses where the role or
// its replicas are not what was read; nil where there is nothing to change.
func scalePatch(md *v1alpha1.ModelDeployment, role string, replicas int32) ([]byte, error) {
	at := roleIndex(md, role)
	switch {
	case at < 0:
		var there []string
		for _, r := range md.Spec.Roles {
			there = append(there, r.Name)
		}
		return nil, fmt.Errorf("ModelDeployment %q in namespace %s has no role %q: its roles are %s", md.Name, md.Namespace, role, strings.Join(there, ", "))
	case md.DeletionTimestamp != nil:
		return nil, fmt.Errorf("ModelDeployment %q in namespace %s is being deleted: all its replicas go; kubectl lastcall explain %s -n %s says what it waits for", md.Name, md.Namespace, md.Name, md.Namespace)
	case render.Replicas(&md.Spec.Roles[at]) == replicas:
		return nil, nil
	}
	path := fmt.Sprintf("/spec/roles/%d/", at)
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{"test", path + "name", role}}
	if present := md.Spec.Roles[at].Replicas; present != nil {
		patch = append(patch, operation{"test", path + "replicas", *present})
	}
	text, err := json.Marshal(append(patch, operation{"add", path + "replicas", replicas}))
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return text, nil
}
