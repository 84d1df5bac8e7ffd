# lastcall asks the engine of this container for its metrics.
# Source, with comments: github.com/lastcall-dev/lastcall, internal/drain/fetch.py

#: The part that the drain hook and the reads of internal/probe have in common.
#: internal/drain puts constants in front of this text and a program behind it, and
#: takes out every comment that starts with "#:". Python 3.6 and later, standard
#: library only.
#:
#: SCHEME, HOSTS, PORT, PATH   where the engine serves its metrics
#: MAX_BODY   the largest body, in bytes
#: PROC       where procfs is mounted
#: judge      the program's: what fetch returns of an answer with status 200

import errno
import http.client
import os
import signal
import socket
from urllib.parse import urljoin, urlsplit


#: The limit of a read. Not an Exception: http.client and ssl would wrap it.
class Overrun(BaseException):
    pass


class NothingToMeasure(Exception):
    pass


#: An answer that is not a whole body of metrics.
class Unread(Exception):
    pass


class Cut(Unread):
    pass


class TooLarge(Unread):
    pass


#: Only what happens in fetch is broken off: where the processor is scarce, an
#: alarm may come when the program is already done with the fetch before.
def on_alarm(_, frame):
    while frame:
        if frame.f_code is fetch.__code__:
            raise Overrun
        frame = frame.f_back


#: One fetch, or Overrun after so many seconds: on_alarm must be the handler of
#: SIGALRM. A wall-clock timer bounds it, because a socket timeout starts again with
#: every byte that drips in. The timer repeats, in case an Overrun is raised where
#: it is ignored.
def fetch_within(limit):
    try:
        signal.setitimer(signal.ITIMER_REAL, max(limit, 0.001), 0.1)
        return fetch(HOSTS, PATH)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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
        raise Unread("the answer is %d" % response.status)
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


#: The whole body of an answer.
def body_of(response):
    body = b""
    try:
        while len(body) <= MAX_BODY:
            part = response.read(MAX_BODY + 1 - len(body))
            if not part:
                break
            body += part
    except (OSError, http.client.HTTPException):
        raise Cut("the body is cut short")
    if len(body) > MAX_BODY:
        raise TooLarge("the body is over %d bytes" % MAX_BODY)
    if response.length:
        raise Cut("the body is cut short")
    return body


#: The first process of this container: when it started, in the kernel's ticks, and
#: its number. It is the earliest of this cgroup: where the Pod shares its process
#: namespace, PID 1 is another container's.
def first_process():
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
    return min(processes)
