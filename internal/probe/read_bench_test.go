package probe

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

// BenchmarkRead is what a read costs the retirer, with an API server that answers
// at once: a body of an engine's usual size, and one of the largest.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{128 << 10, engine.MaxBody} {
		body := idleBody + strings.Repeat("# of no interest here\n", size)[:size-len(idleBody)]
		header := fmt.Sprintf(`{"started": "1", "length": %d}`+"\n", len(body))
		b.Run(fmt.Sprintf("%d KiB", size>>10), func(b *testing.B) {
			server := serve(b, func(s *session) {
				_, _ = io.WriteString(s.stdout, header+body+endMark)
				s.exits(0)
			})
			r := reader(b, at(server), live(func(_ context.Context, pod *corev1.Pod) error { *pod = *member(); return nil }))
			run := target(b, somewhere)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if result := r.Read(b.Context(), run); result.Verdict != engine.Idle {
					b.Fatal(result.Message)
				}
			}
		})
	}
}
