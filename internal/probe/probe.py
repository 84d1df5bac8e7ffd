# lastcall's read of this engine: its metrics as they are, judged by who reads this.
# Source, with comments: github.com/lastcall-dev/lastcall, internal/probe/probe.py

#: internal/probe puts these constants, and internal/drain's fetch.py with its own, in
#: front of this text, and main.py behind it:
#:
#: LIMIT   the longest the engine may take, in seconds
#: BOUND   the longest all of this may take: a client that is gone ends nothing here
#: MARK    what the answer ends with
#:
#: The answer is a line of JSON, the body, and MARK.

import json
import time

START = time.monotonic()

judge = body_of


#: The default action of an alarm ends this process, whatever it waits for.
def end_in(seconds):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))


#: What a function returns, or None.
def attempt(function):
    try:
        return function()
    except Exception:
        return None


#: Before the fetch, so that its own connection is not among them. connections.py
#: has them read.
def beside():
    return {}


def main():
    end_in(BOUND)
    answer, body = beside(), b""
    signal.signal(signal.SIGALRM, on_alarm)
    try:
        body = fetch_within(LIMIT)
    except (Exception, Overrun) as e:
        answer["failed"], answer["saying"] = type(e).__name__, str(e)
    end_in(BOUND - (time.monotonic() - START))
    started = attempt(first_process)
    answer["started"] = str(started[0]) if started else ""
    answer["length"] = len(body)
    with open(1, "wb") as out:
        out.write(json.dumps(answer).encode() + b"\n" + body + MARK.encode())
