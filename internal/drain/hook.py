# lastcall's drain hook: the engine finishes its requests before SIGTERM.
# Source, with comments: github.com/lastcall-dev/lastcall, internal/drain/hook.py

#: internal/drain puts the constants of one engine, listener and grace period and the
#: text of fetch.py in front of this text, and takes out every comment that starts
#: with "#:". Python 3.6 and later, standard library only. Times are in seconds from
#: START. Beside the constants of fetch.py, whose PORT is 0 if the engine serves its
#: metrics nowhere that would answer for all its requests:
#:
#: GAUGES     per gauge its name, then its former names
#: OPTIONAL   the gauges that may be missing
#: BREAKDOWN  labels that mark a sample as part of another one
#: COPY       labels that tell copies of one value apart
#: SETTLE     the first read starts
#: LAST       the moment from which no read starts
#: END        the latest moment a read may end
#: INTERVAL   between the starts of two reads
#: LIMIT      the longest one read may take
#: LOG_EVERY  the longest silence in the log
#: IN_A_ROW   how many reads that agree end the hook

import math
import re
import stat
import time

START = time.monotonic()

BUSY, IDLE, NOTHING = "busy", "idle", "nothing to measure"


#: Reading the gauges.


#: One read: what it tells, and in words what was seen.
def read():
    limit = min(LIMIT, END - elapsed())
    try:
        return fetch_within(limit)
    except Overrun:
        return BUSY, "no answer in %.3g s" % limit
    except NothingToMeasure as e:
        return NOTHING, str(e)
    except Unread as e:
        return BUSY, str(e)
    except Exception as e:
        return BUSY, "the read failed: %s" % type(e).__name__


def judge(response):
    verdict, in_flight, detail = reading(body_of(response))
    if verdict == "Idle":
        return IDLE, "idle"
    if verdict == "Busy":
        return BUSY, "%g in flight: %s" % (in_flight, detail)
    return BUSY, "unknown: " + detail


#: What a body proves: Read of internal/engine in Python. The numbers are those of
#: its rules; body_of has kept rule 1. \udc80-\udcff is what "surrogateescape" makes
#: of bytes that are not UTF-8.
METRICS = re.compile(r"\Z|#|[a-zA-Z_:][a-zA-Z0-9_:]*[{ \t]")
NAME = re.compile(r"[^{ \t]*")
QUOTED = r'"((?:[^"\\\udc80-\udcff]|\\["\\n])*)"'
LABEL = re.compile(r"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)?(?:%s)?[ \t]*=[ \t]*%s[ \t]*(?:,|(?=}))" % (QUOTED, QUOTED))
BRACE = re.compile(r"[ \t]*}")
FIELD = re.compile(r"[^ \t]+")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan", re.I | re.A)


def reading(body):
    text = body.decode("utf-8", "surrogateescape")
    if not METRICS.match(text.lstrip(" \t\r\n")):  #: 3
        return "Unknown", 0, "the body is not Prometheus text"
    listed = {name: gauge[0] for gauge in GAUGES for name in gauge}
    samples, not_gauges, invalid = [], set(), None
    for line in text.split("\n"):
        line = line.strip(" \t\r")  #: 2
        if line.startswith("#"):
            comment = line[1:].lstrip(" \t")
            words = FIELD.findall(comment[4:]) if comment.startswith("TYPE") else []
            kind = " ".join(words[1:]).lower()
            if words and words[0] in listed and kind not in ("gauge", "untyped", "unknown", ""):  #: 5
                not_gauges.add(words[0])
                invalid = invalid or "%s is not declared as gauge" % words[0]
        else:
            name = NAME.match(line).group()
            if name in listed:  #: 4
                samples.append((name, line[len(name) :]))
    series = {gauge[0]: {} for gauge in GAUGES}
    for name, rest in samples:
        if name in not_gauges:
            continue
        try:
            labels, value = sample(rest)
        except ValueError:  #: 6
            invalid = invalid or "%s has a line that cannot be read" % name
            continue
        if any(labels.get(label) for label in BREAKDOWN):  #: 7
            continue
        if not 0 <= value < math.inf:  #: 8
            invalid = invalid or "%s is %g" % (name, value)
            continue
        key = tuple(sorted(item for item in labels.items() if item[0] not in COPY))  #: 9
        values = series[listed[name]]
        values[key] = max(value, values.get(key, 0))
    total = {name: sum(values.values()) for name, values in series.items()}
    in_flight = sum(total.values())
    if in_flight > 0:  #: 10
        return "Busy", in_flight, ", ".join("%s %g" % item for item in total.items() if item[1])
    missing = [name for name, values in series.items() if not values and name not in OPTIONAL]
    if invalid or missing:  #: 11
        return "Unknown", 0, invalid or "%s is missing" % missing[0]
    return "Idle", 0, ""  #: 12


#: The labels and the value that follow a sample's name.
def sample(rest):
    rest, labels = rest.lstrip(" \t"), {}
    if rest.startswith("{"):
        end, label = 1, LABEL.match(rest, 1)
        while label:
            bare, quoted, value = label.groups("")
            name = bare + unescape(quoted)
            if name in labels or name in ("", "__name__"):
                raise ValueError
            labels[name] = unescape(value)
            end = label.end()
            label = LABEL.match(rest, end)
        brace = BRACE.match(rest, end)
        if not brace:
            raise ValueError
        rest = rest[brace.end() :]
    value, *after = FIELD.findall(rest) or [""]
    if after and not after[0].startswith("#"):
        number(after[0])
        if after[1:] and not after[1].startswith("#"):
            raise ValueError
    return labels, number(value)


def unescape(text):
    return re.sub(r"\\(.)", lambda found: found.group(1).replace("n", "\n"), text)


#: float reads more than Prometheus does, such as 1_000, and 1e999 as infinite.
def number(text):
    value = float(text) if NUMBER.fullmatch(text) else None
    if value is None or (math.isinf(value) and "n" not in text.lower()):
        raise ValueError
    return value


#: Writing to the container's log.


#: The container's log is the standard output of its first process; the hook's own
#: goes nowhere. Opening never blocks, and a file is never written to.
def open_log():
    path = "%s/%d/fd/1" % (PROC, first_process()[1])
    mode = os.stat(path).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    return None


class Log:
    def __init__(self):
        self.at = elapsed()
        try:
            self.fd = open_log()
        except Exception:
            self.fd = None

    def write(self, text):
        self.at = elapsed()
        try:
            os.write(self.fd, ("lastcall: drain: %.1f s: %s\n" % (self.at, text[:1000])).encode())
        except Exception:
            pass


#: The window.


def elapsed():
    return time.monotonic() - START


def sleep_until(at):
    time.sleep(max(0, at - elapsed()))


def drain(log):
    at, row, moved = SETTLE, 0, False
    kind, seen = None, "no read was made in time"
    while at < LAST:
        sleep_until(at)
        #: An overloaded machine wakes late.
        if elapsed() >= LAST:
            break
        before = kind, seen
        kind, seen = read()
        if (kind, seen) != before:
            moved = moved or before[0] is not None
            log.write(seen)
        elif elapsed() - log.at >= LOG_EVERY:
            log.write(seen)
        row = row + 1 if kind == before[0] else 1
        if row >= IN_A_ROW and kind == IDLE:
            return "Drained: nothing is in flight"
        if row >= IN_A_ROW and kind == NOTHING:
            return "NothingToMeasure: " + seen
        at = max(at + INTERVAL, elapsed())
    sleep_until(LAST)
    return "Deadline: %s%s" % (seen, "" if moved else ", the same in every read")


def main():
    signal.signal(signal.SIGALRM, on_alarm)
    log = Log()
    if not PORT:
        log.write("the engine serves on to %g s: its requests cannot be counted" % LAST)
        sleep_until(LAST)
        return log.write("Deadline: requests may be in flight")
    log.write("the engine serves on; its gauges are read on port %d from %g s to %g s" % (PORT, SETTLE, LAST))
    log.write(drain(log))


#: A hook that fails makes an event and takes the settle away with it.
if __name__ == "__main__":
    try:
        main()
    except BaseException:
        sleep_until(SETTLE)
    os._exit(0)
