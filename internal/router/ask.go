package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// maxBody is the largest answer that is read, in bytes.
const maxBody = 1 << 20

// errorLength is how much of an error is shown, in bytes: some quote what they got.
const errorLength = 200

// get returns the body of a 200 that is known to be whole. Its errors are for people:
// they name the path and the status, and quote no body.
func get(ctx context.Context, client *http.Client, base, path string) ([]byte, error) {
	status, body, err := ask(ctx, client, http.MethodGet, base, path, nil)
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("GET %s: %w", path, statusError(status))
	}
	return body, nil
}

// tell sends a command, and returns the status. A status that is neither 2xx nor one of
// those that are fine is an error.
func tell(ctx context.Context, client *http.Client, method, base, path string, body []byte, fine ...int) error {
	status, _, err := ask(ctx, client, method, base, path, body)
	switch {
	case err != nil:
		return err
	case status/100 != 2 && !slices.Contains(fine, status):
		return fmt.Errorf("%s %s: %w", method, path, statusError(status))
	}
	return nil
}

// silence is an answer that did not come, or not to its end.
type silence struct{ error }

// answered reports whether a process said something, whatever it was.
func answered(err error) bool { return !errors.As(err, new(silence)) }

// statusError is an answer that has another status than it should.
type statusError int

func (s statusError) Error() string {
	switch int(s) {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("it answers %d and wants credentials: a token in the Secret of spec.router.secretName, or another one", int(s))
	}
	return fmt.Sprintf("it answers %d", int(s))
}

// ask makes one request of one process. A redirect is not followed: it could lead to
// another process, which would then testify for this one.
func ask(ctx context.Context, client *http.Client, method, base, path string, body []byte) (int, []byte, error) {
	what := method + " " + path
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, silence{fmt.Errorf("%s: its address is not valid", what)}
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	direct := *client
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := direct.Do(request)
	if err != nil {
		return 0, nil, silence{fmt.Errorf("%s: %w", what, plain(err))}
	}
	defer response.Body.Close() //nolint:errcheck // there is nothing to lose: what was read is whole or an error
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	switch {
	case err != nil:
		return 0, nil, silence{fmt.Errorf("%s: its answer was cut: %w", what, plain(err))}
	case len(answer) > maxBody:
		return 0, nil, fmt.Errorf("%s: its answer has more than %d bytes", what, maxBody)
	case response.StatusCode == http.StatusOK && !showsItsEnd(response, len(answer)):
		return 0, nil, fmt.Errorf("%s: its answer does not say how long it is, so a cut would not show", what)
	}
	return response.StatusCode, answer, nil
}

// showsItsEnd reports whether an answer that was cut would have been noticed. One that
// simply ends when the connection does is taken for a shorter one.
func showsItsEnd(r *http.Response, length int) bool {
	if r.ContentLength >= 0 {
		return r.ContentLength == int64(length)
	}
	return r.Uncompressed || r.ProtoMajor >= 2 || slices.Contains(r.TransferEncoding, "chunked")
}

// plain is an error in few words, without the URL that was asked, which may have a secret
// in it, and without what was answered.
func plain(err error) error {
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err
	}
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("lastcall did not wait for it")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return errors.New("no answer in time")
	case strings.Contains(err.Error(), "connection broken"), strings.Contains(err.Error(), "malformed"):
		return errors.New("what it answers is no HTTP") // the error quotes the answer
	}
	return errors.New(strings.ToValidUTF8(fmt.Sprintf("%.*s", errorLength, err.Error()), ""))
}
