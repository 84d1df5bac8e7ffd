package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	idleTime   = 10 * time.Second
	admissions = 10_000
	posters    = 4   // at a time, each on a connection of its own that stays open
	turn       = 500 // admissions of one program before it is the other's turn
)

// enginePodFile is a Pod of a ReplicaSet as the API server sends it.
const enginePodFile = "internal/admission/testdata/engine-pod.json"

// measureProcesses takes the figures of (d) and the cost of an admission over
// the wire, without a cluster: both processes idle, then under load in turns.
func measureProcesses(ctx context.Context, dir string) ([]figure, error) {
	review, err := podReview()
	if err != nil {
		return nil, err
	}
	lastcall, noop, stop, err := startBoth(ctx, dir, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	defer stop()
	say("(d) both webhooks idle for %s", idleTime)
	select {
	case <-time.After(idleTime):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	both := []*webhook{lastcall, noop}
	var idle, loaded [2]usage
	for i, w := range both {
		if idle[i], err = w.usage(); err != nil {
			return nil, err
		}
	}
	say("(d) %d admissions of %d bytes to each", admissions, len(review))
	var times [2][]time.Duration
	for range admissions / turn {
		for i, w := range both {
			took, err := w.admitAll(ctx, review, w == lastcall)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			times[i] = append(times[i], took...)
		}
	}
	for i, w := range both {
		if loaded[i], err = w.usage(); err != nil {
			return nil, err
		}
	}
	return processFigures(idle, loaded, times), nil
}

func processFigures(idle, loaded [2]usage, times [2][]time.Duration) []figure {
	const beside = "no-op webhook"
	memory := func(what string, of [2]usage, field func(usage) float64) figure {
		return figure{"(d) " + what, field(of[0]), field(of[1]), mebibytes, beside}
	}
	resident := func(u usage) float64 { return u.resident }
	each := func(i int) float64 { return (loaded[i].cpu - idle[i].cpu).Seconds() / admissions }
	return append([]figure{
		memory(fmt.Sprintf("resident memory, idle for %s", idleTime), idle, resident),
		memory("resident memory, after 10,000 admissions", loaded, resident),
		memory("resident memory, peak", loaded, func(u usage) float64 { return u.peak }),
		{"(d) processor time of the process per admission", each(0), each(1), seconds, beside},
	}, latencies(fmt.Sprintf("(d) admission over TLS, %d at a time", posters), times[0], times[1], beside)...)
}

// admitAll makes one turn of admissions and returns how long each took.
func (w *webhook) admitAll(ctx context.Context, review []byte, patches bool) ([]time.Duration, error) {
	var all sync.WaitGroup
	times, errs := make([]time.Duration, turn), make([]error, posters)
	for poster := range posters {
		all.Go(func() {
			for i := poster; i < turn && errs[poster] == nil; i += posters {
				var answer []byte
				times[i], answer, errs[poster] = w.admit(ctx, review)
				if errs[poster] == nil {
					errs[poster] = check(answer, patches)
				}
			}
		})
	}
	all.Wait()
	return times, errors.Join(errs...)
}

// check tells whether the program did what is being measured.
func check(answer []byte, patches bool) error {
	if !bytes.Contains(answer, []byte(`"allowed":true`)) || bytes.Contains(answer, []byte(`"patch":`)) != patches {
		return fmt.Errorf("unexpected answer: %s", answer)
	}
	return nil
}

// podReview asks for the creation of an engine Pod.
func podReview() ([]byte, error) {
	text, err := os.ReadFile(enginePodFile)
	if err != nil {
		return nil, err
	}
	var pod bytes.Buffer
	if err := json.Compact(&pod, text); err != nil {
		return nil, fmt.Errorf("reading %s: %w", enginePodFile, err)
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "3f0a1f0e-5d0c-4a34-9c2b-1f2b7b6f4c11",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: "chat",
			Operation: admissionv1.Create,
		},
	}
	review.Request.Object.Raw = pod.Bytes()
	return json.Marshal(review)
}
