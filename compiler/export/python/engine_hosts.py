"""Where the processes of other machines reach this one.

By default gloo asks for the address of this machine's name. Many machines say that it is 127.0.0.1
(Debian: 127.0.1.1), which no other machine reaches; what the way to the coordinator starts from, they
do.
"""

import contextlib
import os
import socket
import struct

# Of Linux: the address of a network interface.
SIOCGIFADDR = 0x8915


def own_address(coordinator):
    """The address from which this machine sends to the coordinator, `HOST:PORT`."""
    host, _, port = coordinator.rpartition(":")
    way = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
    family, kind, protocol, _, address = way
    with socket.socket(family, kind, protocol) as sender:
        # Nothing is sent: of a datagram, connecting only finds the way.
        sender.connect(address)
        return sender.getsockname()[0]


def interface_of(address):
    """The name of the network interface that has an address (IPv4, Linux), else None."""
    try:
        import fcntl
    except ImportError:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                given = struct.pack("256s", name.encode()[:15])
                held = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, given)[20:24]
                if socket.inet_ntoa(held) == address:
                    return name
    return None


def let_gloo_of_torch(coordinator):
    """Has gloo of PyTorch use that interface, unless the environment names one."""
    name = interface_of(own_address(coordinator))
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def let_gloo_of_jax(coordinator):
    """Has gloo of JAX use that address; a JAX that has no such parameter asks as before."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src.lib import xla_client

        make = xla_client._xla.make_gloo_tcp_collectives
        address = own_address(coordinator)
        xla_client._xla.make_gloo_tcp_collectives = lambda **given: make(
            **{"hostname": address, **given}
        )
