package validate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/render"
)

const (
	maxRoleName = 32
	maxSize     = 64
)

// MaxReplicas is the highest number of replicas of a role, as in the schema.
const MaxReplicas = 1024

// SplitGraceSeconds is the least grace period of an SGLang Prefill or Decode
// engine: it takes about 20 s from SIGTERM to its exit even when idle.
const SplitGraceSeconds = 45

// unprobeable are the reasons not to be measurable that keep the kubelet's probes
// away as well.
var unprobeable = []engine.Unmeasurable{engine.UnixSocket, engine.GRPCOnly, engine.ClientCertificate}

var roleName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// role is one role in its ModelDeployment.
type role struct {
	*v1alpha1.Role
	spec *v1alpha1.ModelDeploymentSpec
	path *field.Path
}

func (r role) validate(f *findings, deployment string) {
	r.names(f, deployment)
	if r.Kind != "" {
		f.add(oneOf(r.path.Child("kind"), r.Kind, []v1alpha1.RoleKind{v1alpha1.Server, v1alpha1.Prefill, v1alpha1.Decode}))
	}
	f.add(within(r.path.Child("replicas"), render.Replicas(r.Role), 0, MaxReplicas, " replicas"))
	f.add(within(r.path.Child("size"), render.Size(r.Role), 1, maxSize, " Pods for each replica"))
	if r.ImagePullPolicy != "" {
		f.add(oneOf(r.path.Child("imagePullPolicy"), r.ImagePullPolicy, []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}))
	}
	r.grace(f)
	r.ports(f)
	r.metadata(f)
	r.kueue(f)
	r.commandLine(f)
}

// names are checked with the highest ordinal and member that the role could ever
// have, so that a deployment that is accepted can be scaled.
func (r role) names(f *findings, deployment string) {
	path := r.path.Child("name")
	switch {
	case r.Name == "":
		f.add(field.Required(path, "it is part of the names of the role's Pods and its Service"))
		return
	case !roleName.MatchString(r.Name) || len(r.Name) > maxRoleName:
		f.add(field.Invalid(path, r.Name, fmt.Sprintf("must be a lower-case letter, then lower-case letters and digits, at most %d in all: NAME-ROLE-ORDINAL must tell its parts apart", maxRoleName)))
		return
	}
	longest := fmt.Sprintf("%s-%s-%d", deployment, r.Name, MaxReplicas-1)
	if size := render.Size(r.Role); size > 1 {
		longest += "-" + strconv.Itoa(int(size)-1)
	}
	if len(longest) > validation.DNS1123LabelMaxLength {
		f.add(field.Invalid(path, r.Name, podNameMessage))
	}
}

func (r role) grace(f *findings) {
	path := r.path.Child("terminationGracePeriodSeconds")
	seconds, _ := render.GraceSeconds(r.Role)
	if message := Grace(seconds); message != "" {
		f.add(field.Invalid(path, seconds, message))
		return
	}
	if r.spec.Engine.Name == v1alpha1.SGLang && render.Kind(r.Role) != v1alpha1.Server && !render.TakenOver(r.Role) && seconds < SplitGraceSeconds {
		f.warn(path, fmt.Sprintf("SGLang %s takes about 20 s to exit even when idle; set at least %d, not %d", r.Kind, SplitGraceSeconds, seconds))
	}
}

func (r role) ports(f *findings) {
	path := r.path.Child("port")
	if r.Port != nil {
		f.add(within(path, *r.Port, 1, maxPort, ""))
	}
	var flag int32
	if !render.TakenOver(r.Role) {
		flag, _ = engine.PortFlag(r.ExtraArgs, render.LiteralEnv(r.Role))
	}
	if r.Port != nil && flag != 0 && flag != *r.Port {
		f.warn(path, fmt.Sprintf("%d is not used: --port %d in extraArgs goes first, for the Services and probes too; keep one of the two", *r.Port, flag))
	}
	if r.Proxy == nil {
		return
	}
	proxy := r.path.Child("proxy")
	if r.Proxy.Image == "" {
		f.add(field.Required(proxy.Child("image"), "it is the image of the container in front of the engine"))
	}
	f.add(within(proxy.Child("port"), r.Proxy.Port, 1, maxPort, ""))
	if r.Proxy.Port == render.EnginePort(r.spec, r.Role) {
		f.add(field.Invalid(proxy.Child("port"), r.Proxy.Port, proxyPortMessage))
	}
}

// metadata finds labels and annotations that Pods cannot have, and those that
// lastcall sets itself.
func (r role) metadata(f *findings) {
	labels, annotations := r.path.Child("labels"), r.path.Child("annotations")
	f.add(metav1validation.ValidateLabels(r.Labels, labels)...)
	f.add(metav1validation.ValidateLabels(r.NodeSelector, r.path.Child("nodeSelector"))...)
	f.add(apivalidation.ValidateAnnotations(r.Annotations, annotations)...)
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if isReserved(key) {
			f.add(field.Forbidden(labels.Key(key), "lastcall sets it"))
		}
	}
	listener := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		switch {
		case key == names.AnnotationMetricsPort || key == names.AnnotationMetricsScheme || key == names.AnnotationMetricsPath:
			listener[key] = r.Annotations[key]
		case key == names.AnnotationGraceSeconds:
			f.add(field.Forbidden(annotations.Key(key), "lastcall sets it; use terminationGracePeriodSeconds"))
		case isReserved(key):
			f.add(field.Forbidden(annotations.Key(key), "lastcall sets it"))
		}
	}
	f.add(PodAnnotations(listener, annotations)...)
}

func isReserved(key string) bool {
	switch key {
	case names.LabelName, names.LabelInstance, names.LabelComponent, names.LabelManagedBy, names.LabelPartOf:
		return true
	}
	return strings.HasPrefix(key, names.Group+"/")
}

// commandLine warns of arguments that keep lastcall or the kubelet from doing its
// work.
func (r role) commandLine(f *findings) {
	path := r.path.Child("extraArgs")
	if render.TakenOver(r.Role) {
		if len(r.ExtraArgs) > 0 {
			f.warn(path, "not used: command is the whole command line; move them there")
		}
		return
	}
	leader := engine.Container{Command: render.CommandLine(r.spec, r.Role, 0), Env: render.LiteralEnv(r.Role)}
	match, _ := engine.Recognize(leader, engine.Source{Annotations: r.Annotations})
	if match.Unprobeable != "" {
		f.warn(path, "no replica would ever be Ready: "+match.Unprobeable)
	}
	// What keeps the probes away is said once: the annotation that the advice offers
	// helps the measuring alone.
	isSaid := match.Unprobeable != "" && slices.Contains(unprobeable, match.Unmeasurable)
	if match.Unmeasurable != "" && !isSaid {
		f.warn(path, match.Unmeasurable.Advice())
	}
	if match.PortGuessed && r.Port == nil {
		f.warn(path, fmt.Sprintf("the value of --port is not known here, and %d is assumed for the Services and probes: set port to the same value", render.EnginePort(r.spec, r.Role)))
	}
}
