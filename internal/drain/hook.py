# lastcall's drain hook: the engine finishes its requests before SIGTERM.
# Source, with comments: github.com/lastcall-dev/lastcall, internal/drain/hook.py

#: internal/drain puts the constants of one engine, listener and grace period in
#: front of this text, and takes out every comment that starts with "#:". Python 3.6
#: and later, standard library only. Times are in seconds from START.
#:
#: GAUGES     per gauge its name, then its former names
#: OPTIONAL   the gauges that may be missing
#: BREAKDOWN  labels that mark a sample as part of another one
#: COPY       labels that tell copies of one value apart
#: SCHEME, HOSTS, PORT, PATH   where the engine serves its metrics; PORT 0 if nowhere
#:            that would answer for all its requests
#: SETTLE     the first read starts
#: LAST       the moment from which no read starts
#: END        the latest moment a read may end
#: INTERVAL   between the starts of two reads
#: LIMIT      the longest one read may take
#: LOG_EVERY  the longest silence in the log
#: IN_A_ROW   how many reads that agree end the hook
#: MAX_BODY   the largest body, in bytes
#: PROC       where procfs is mounted

import errno
import http.client
import math
import os
import re
import signal
import socket
import stat
import time
from urllib.parse import urljoin, urlsplit

START = time.monotonic()

BUSY, IDLE, NOTHING = "busy", "idle", "nothing to measure"


#: Reading the gauges.


#: The limit of a read. Not an Exception: http.client and ssl would wrap it.
class Overrun(BaseException):
    pass


class NothingToMeasure(Exception):
    pass


#: Only what happens in fetch is broken off: where the processor is scarce, an
#: alarm may come when read is already done with the one before.
def on_alarm(_, frame):
    while frame:
        if frame.f_code is fetch.__code__:
            raise Overrun
        frame = frame.f_back


#: One read: what it tells, and in words what was seen. A wall-clock timer bounds
#: it, because a socket timeout starts again with every byte that drips in. The
#: timer repeats, in case an Overrun is raised where it is ignored.
def read():
    limit = min(LIMIT, END - elapsed())
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, max(limit, 0.001), 0.1)
            return fetch(HOSTS, PATH)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Overrun:
        return BUSY, "no answer in %.3g s" % limit
    except NothingToMeasure as e:
        return NOTHING, str(e)
    except Exception as e:
        return BUSY, "the read failed: %s" % type(e).__name__


def fetch(hosts, path, redirected=False):
    host, sock = connect(hosts)
    try:
        sock = over_tls(sock) if SCHEME == "https" else sock
        response = request(host, sock, path)
        if response.status == 200:
            return judge(response)
        if 300 <= response.status < 400 and not redirected:
            target = within_origin(host, path, response.getheader("Location"))
            if target:
                return fetch([host], target, redirected=True)
        if response.status >= 300:
            raise NothingToMeasure("the answer is %d" % response.status)
        return BUSY, "the answer is %d" % response.status
    finally:
        sock.close()


#: An address that fails so may only mean that the engine is bound to another one.
#: Any other failure is no statement of the engine's.
UNREACHABLE = (
    errno.ECONNREFUSED,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EADDRNOTAVAIL,
    errno.EAFNOSUPPORT,
)


#: Hosts are IP addresses: no alarm interrupts the look-up of a name.
def connect(hosts):
    for host in hosts:
        sock = None
        try:
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            sock.connect((host, PORT))
            return host, sock
        except OSError as e:
            if sock is not None:
                sock.close()
            if isinstance(e, ConnectionResetError):
                raise unanswered(e)
            if e.errno not in UNREACHABLE:
                raise
    raise NothingToMeasure("nothing listens on port %d" % PORT if hosts else "this member serves no metrics")


#: The certificate is not verified: it is made for another name, and who listens
#: on the loopback of this container is the engine.
def over_tls(sock):
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(sock, do_handshake_on_connect=False)
    except OSError as e:
        raise unanswered(e)


#: The answer up to its headers. http.client knows nothing of proxies.
def request(host, sock, path):
    response = None
    try:
        if SCHEME == "https":
            sock.do_handshake()
        connection = http.client.HTTPConnection(host, PORT)
        connection.sock = sock
        connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
        response = http.client.HTTPResponse(sock, method="GET")
        response.begin()
        return response
    except (OSError, http.client.HTTPException) as e:
        if response is not None and isinstance(response.status, int):
            raise
        raise unanswered(e)


#: What went wrong before a status line.
def unanswered(e):
    if isinstance(e, ConnectionError):
        return NothingToMeasure("the connection ends before an answer")
    if isinstance(e, OSError):
        return NothingToMeasure("TLS fails: %s" % (getattr(e, "reason", "") or type(e).__name__))
    return NothingToMeasure("the answer is not HTTP")


#: The path to follow, or None for a redirect elsewhere.
def within_origin(host, path, location):
    if not location:
        return None
    base = "%s://%s:%d" % (SCHEME, "[%s]" % host if ":" in host else host, PORT)
    try:
        url = urlsplit(urljoin(base + path, location))
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    except ValueError:
        return None
    if (url.scheme, url.hostname, port) != (SCHEME, host.lower(), PORT):
        return None
    return (url.path or "/") + ("?" + url.query if url.query else "")


def judge(response):
    body = b""
    try:
        while len(body) <= MAX_BODY:
            part = response.read(MAX_BODY + 1 - len(body))
            if not part:
                break
            body += part
    except (OSError, http.client.HTTPException):
        return BUSY, "the body is cut short"
    if len(body) > MAX_BODY:
        return BUSY, "the body is over %d bytes" % MAX_BODY
    if response.length:
        return BUSY, "the body is cut short"
    verdict, in_flight, detail = reading(body)
    if verdict == "Idle":
        return IDLE, "idle"
    if verdict == "Busy":
        return BUSY, "%g in flight: %s" % (in_flight, detail)
    return BUSY, "unknown: " + detail


#: What a body proves: Read of internal/engine in Python. The numbers are those of
#: its rules; judge has kept rule 1. \udc80-\udcff is what "surrogateescape" makes
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


#: The container's log is the standard output of its first process. The hook's own
#: goes nowhere. That process is the earliest of this cgroup: where the Pod shares
#: its process namespace, PID 1 is another container's. Opening never blocks, and
#: a file is never written to.
def open_log():
    with open(PROC + "/self/cgroup") as f:
        mine = f.read()
    processes = []
    for pid in filter(str.isdigit, os.listdir(PROC)):
        try:
            with open("%s/%s/cgroup" % (PROC, pid)) as f:
                if f.read() != mine:
                    continue
            with open("%s/%s/stat" % (PROC, pid)) as f:
                started = int(f.read().rpartition(")")[2].split()[19])
            processes.append((started, int(pid)))
        except (OSError, ValueError, IndexError):
            continue
    path = "%s/%d/fd/1" % (PROC, min(processes)[1])
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
