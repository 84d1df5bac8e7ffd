package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/bench/controlplane"
)

// sizeBefore is how many replicas each owner of (g) and (h) has until one is taken away.
const sizeBefore = 4

// A scaler is a contender whose owners are scaled down by one.
type scaler struct {
	*contender
	// deleter is who deletes the Pods, and users all who have to do with that.
	deleter string
	users   []string
	// replicasPath is where an owner has its replicas, and pod the one that goes.
	replicasPath string
	pod          func(owner string) string
	// end is how a scale-down ended, empty while it has not.
	end func(client.ObjectList) []string

	namespace string
	owners    int
	// first is before any owner was scaled, and at before each one was.
	first time.Time
	at    map[string]time.Time
	// ends are how many scale-downs came to each end.
	ends map[string]int
	// quietBefore and quietAfter are calls of a minute in which nothing changes.
	quietBefore, quietAfter []controlplane.Call
}

// lastcallScaler has ModelDeployments with so many replicas until one is taken away.
func lastcallScaler(cluster *running, size int) *scaler {
	return &scaler{
		contender: modelDeployments(cluster.plane, cluster.controllers["operator"], size),
		deleter:   retirerUser, users: []string{retirerUser, operatorUser},
		replicasPath: "/spec/roles/0/replicas",
		pod:          func(owner string) string { return fmt.Sprintf("%s-%s-%d", owner, role, size-1) },
		end: func(list client.ObjectList) (ends []string) {
			for _, md := range list.(*v1alpha1.ModelDeploymentList).Items {
				ends = append(ends, endOf(md.Status))
			}
			return ends
		},
	}
}

func endOf(status v1alpha1.ModelDeploymentStatus) string {
	switch {
	case status.Retirement != nil && status.Retirement.State == v1alpha1.StateAborted:
		return string(v1alpha1.StateAborted) + ": " + status.Retirement.Reason
	case status.Retirement != nil || status.LastRetirement == nil:
		return ""
	}
	return string(status.LastRetirement.End)
}

func statefulSetScaler(cluster *running) *scaler {
	return &scaler{
		contender: statefulSets(cluster.plane, sizeBefore),
		deleter:   statefulSetUser, users: []string{statefulSetUser},
		replicasPath: "/spec/replicas",
		pod:          func(owner string) string { return fmt.Sprintf("%s-%d", owner, sizeBefore-1) },
		end: func(list client.ObjectList) (ends []string) {
			for _, set := range list.(*appsv1.StatefulSetList).Items {
				end := ""
				if set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == sizeBefore-1 {
					end = string(v1alpha1.EndCompleted)
				}
				ends = append(ends, end)
			}
			return ends
		},
	}
}

func ownerName(i int) string { return fmt.Sprintf("bench-%d", i) }

// create makes so many owners and waits until all their replicas are Ready.
func (s *scaler) create(ctx context.Context, n int) (err error) {
	if s.namespace, err = s.plane.Cluster.CreateNamespace(ctx, "bench", nil); err != nil {
		return err
	}
	s.owners = n
	return s.make(ctx, s.namespace, n)
}

// scale takes one replica from each owner, at once.
func (s *scaler) scale(ctx context.Context) error {
	patch := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op": "replace", "path": %q, "value": %d}]`, s.replicasPath, s.replicas-1))
	var all sync.WaitGroup
	at, errs := make([]time.Time, s.owners), make([]error, creators)
	s.first, s.at = time.Now(), map[string]time.Time{}
	for creator := range creators {
		all.Go(func() {
			for i := creator; i < s.owners && errs[creator] == nil; i += creators {
				objects := s.objects(s.namespace, ownerName(i))
				at[i] = time.Now()
				errs[creator] = s.plane.Cluster.Client.Patch(ctx, objects[len(objects)-1], patch)
			}
		})
	}
	all.Wait()
	for i, when := range at {
		s.at[ownerName(i)] = when
	}
	return errors.Join(errs...)
}

// await waits until every scale-down has ended.
func (s *scaler) await(ctx context.Context) error {
	return s.plane.Wait(ctx, "the ends of scale-downs", func(ctx context.Context) error {
		if err := s.plane.Cluster.Client.List(ctx, s.list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		s.ends = map[string]int{}
		for _, end := range s.end(s.list) {
			s.ends[end]++
		}
		if s.ends[""] > 0 {
			return fmt.Errorf("%d of %d have not ended", s.ends[""], s.owners)
		}
		return nil
	})
}

// run scales all owners down, and waits for the end of that.
func (s *scaler) run(ctx context.Context) (err error) {
	if err := s.scale(ctx); err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	s.load = loadAverage()
	end, err := settle(ctx, s.plane, s.users...)
	s.calls = s.callsBetween(s.first, end)
	return err
}

// callsBetween are those of everybody who has to do with it.
func (s *scaler) callsBetween(begin, end time.Time) (all []controlplane.Call) {
	for _, user := range s.users {
		all = append(all, s.plane.Calls.Between(user, begin, end)...)
	}
	return all
}

// deleted is when the API server accepted the delete of each owner's Pod.
func (s *scaler) deleted() map[string]time.Time {
	owner := map[string]string{}
	for name := range s.at {
		owner[s.pod(name)] = name
	}
	deleted := map[string]time.Time{}
	for _, c := range s.calls {
		name := owner[c.Name]
		mine := c.User == s.deleter && c.Verb == "delete" && c.Resource == "pods" && c.Namespace == s.namespace && c.Code < 300
		if !mine || name == "" {
			continue
		}
		if before, known := deleted[name]; !known || c.Answered.Before(before) {
			deleted[name] = c.Answered
		}
	}
	return deleted
}

// waits are how long the owners waited for the delete of their Pod, from when each
// was scaled. Owners whose Pod was not deleted are left out.
func (s *scaler) waits() (all []time.Duration) {
	for name, at := range s.deleted() {
		all = append(all, at.Sub(s.at[name]))
	}
	return all
}
