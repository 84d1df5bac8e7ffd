#: What internal/probe puts between probe.py and main.py where connections are wanted:
#:
#: PORTS   the local ports whose connections they are
#: MOST    the largest number of connections that is told

import struct


#: The kernel prints an address in words of 32 bits in the machine's own order.
def address(text):
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET6 if len(words) > 1 else socket.AF_INET, struct.pack("=%dI" % len(words), *words))


#: The fields of each line of a file of this network namespace. A kernel without
#: IPv6 lacks some.
def table(name):
    try:
        with open("%s/net/%s" % (PROC, name)) as f:
            return [line.split() for line in f]
    except FileNotFoundError:
        if "6" in name:
            return []
        raise


#: The remote ends of the established connections to PORTS; None if there are more
#: than can be told.
def connections():
    found = []
    for row in table("tcp")[1:] + table("tcp6")[1:]:
        local, remote, state = row[1:4]
        if state == "01" and int(local.rpartition(":")[2], 16) in PORTS:
            host, _, port = remote.rpartition(":")
            found.append([address(host), int(port, 16)])
    return found if len(found) <= MOST else None


#: The gateways of the default routes: by them the node reaches this Pod.
def gateways():
    found = []
    for row in table("route")[1:]:
        if row[1] == row[7] == "00000000" and int(row[3], 16) & 2:
            found.append(address(row[2]))
    for row in table("ipv6_route"):
        if row[0] == "0" * 32 and row[1] == "00" and int(row[8], 16) & 2:
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[4])))
    return found


def beside():
    return {"connections": attempt(connections), "gateways": attempt(gateways)}
