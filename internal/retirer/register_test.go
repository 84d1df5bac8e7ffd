package retirer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// Where more rounds are due than can be had, those that only look come last.
func TestRoundsThatAreDueFirst(t *testing.T) {
	queue := priorityqueue.New[reconcile.Request]("test")
	defer queue.ShutDown()
	named := func(name string, generation int64, retry string) *v1alpha1.ModelDeployment {
		return &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, Generation: generation, Annotations: map[string]string{names.AnnotationRetryRetirement: retry},
		}}
	}
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: name}}
	}
	queue.Add(request("changed"))
	read(t.Context(), event.TypedGenericEvent[*v1alpha1.ModelDeployment]{Object: named("read", 1, "")}, queue)
	edited(t.Context(), event.UpdateEvent{ObjectOld: named("status", 1, ""), ObjectNew: named("status", 1, "")}, queue)
	edited(t.Context(), event.UpdateEvent{ObjectOld: named("scaled", 1, ""), ObjectNew: named("scaled", 2, "")}, queue)
	edited(t.Context(), event.UpdateEvent{ObjectOld: named("retried", 1, ""), ObjectNew: named("retried", 1, "now")}, queue)
	var order []string
	for range 4 {
		next, _, _ := queue.GetWithPriority()
		order = append(order, next.Name)
	}
	assert.Equal(t, []string{"scaled", "retried", "read", "changed"}, order)

	assert.Equal(t, priorityRead, *again(time.Millisecond).Priority)
	assert.Equal(t, priorityRead, *again(retire.MarkInterval).Priority)
	assert.Equal(t, priorityNone, *again(retire.ReadInterval).Priority, "nor does one stay urgent for ever")
}
