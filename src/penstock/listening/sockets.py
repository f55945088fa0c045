"""Listening sockets, which are bound before anything else is opened, their TLS, and the limit of open files.

Options that a listening socket has are inherited by the connections it accepts (Linux),
so they cost nothing for each: a peer that is gone without a word is found by the kernel.
"""

import errno
import resource
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.contract.limits import TOPIC_FILES_MAX
from penstock.runtime.open_files import files_for_topics

# A silent peer is probed after a minute, four times, and then taken for dead: two minutes together.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
# A peer that does not acknowledge what was sent for so long is gone.
_UNHEARD_MS = 60_000
# Files that are neither connections nor topics': journals, history, snapshots, the loop's own.
FILES_KEPT = 512
# How often another port is looked for that is free at all addresses.
_TRIES = 20


class CannotListen(OSError):
    """The address cannot be had; the message says why, and what to do."""


class BadCertificate(OSError):
    """The certificate or its key cannot be used; the message says why."""


def bind(host: str, port: int, *, option: str = "--port") -> list[socket.socket]:
    """Bind all addresses that a host has, or raise `CannotListen`; nothing is accepted yet.

    ``option`` is what chooses the port. If any free port may be taken, all addresses get the same.
    """
    name = host.strip("[]")
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotListen(f"there is no address {host}: {error.strerror}. Say --host 127.0.0.1.") from error
    places = [(family, address) for family, _, _, _, address in dict.fromkeys(found)]
    try:
        return _bind_all(places, _TRIES)
    except OSError as error:
        raise CannotListen(_why(host, port, error, option)) from error


def _bind_all(places: Sequence[tuple[int, tuple[Any, ...]]], tries: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for family, (address, port, *more) in places:
            same_port = bound[0].getsockname()[1] if bound else port
            bound.append(_bind(family, (address, same_port, *more)))
    except OSError as error:
        for each in bound:
            each.close()
        # Any port would do, and one that is free at the first address need not be so at another.
        is_elsewhere = bound and places[0][1][1] == 0 and error.errno == errno.EADDRINUSE
        if is_elsewhere and tries > 1:
            return _bind_all(places, tries - 1)
        raise
    return bound


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in {**_KEEPALIVE, "TCP_USER_TIMEOUT": _UNHEARD_MS}.items():
            if hasattr(socket, option):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if family == socket.AF_INET6:
            # The addresses of a host are bound one by one; otherwise the first takes those of the second.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def _why(host: str, port: int, error: OSError, option: str) -> str:
    what = f"cannot listen on {host}, port {port}: "
    if error.errno == errno.EADDRINUSE:
        return f"{what}something else does. Stop it, or choose another port: {option} 0 takes any that is free."
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"{what}it is not permitted. Ports below 1024 are for root; choose another, such as {option} 8080."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{what}this machine does not have the address. Say --host 127.0.0.1, or 0.0.0.0 for all it has."
    return f"{what}{error.strerror}."


def address_of(listener: socket.socket, *, has_tls: bool) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if has_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return what speaks TLS 1.2 and later with a certificate; raises `BadCertificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A handshake costs a server much more than a client, and there would be no end of them on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except FileNotFoundError as error:
        raise BadCertificate(f"{certificate} or {key} is not there: tls_cert and tls_key name two files") from error
    except (OSError, ValueError) as error:
        raise BadCertificate(f"{certificate} and {key} are no certificate in PEM and its key: {error}") from error
    return context


def _refuse_password() -> str:
    # Otherwise OpenSSL would ask on the terminal, which a service does not have.
    raise ValueError("the key has a password; take it off: openssl pkey -in KEY -out PLAIN")


class Files(NamedTuple):
    """How the files that this process may open are shared between connections and everything else."""

    connections_max: int
    # A connection whose file has this number, or a higher one, is one too many. New files take the lowest free number,
    # so the number says how many files are open, whatever they are.
    number_max: int
    # What the system allows; None for no limit.
    allowed: int | None


def allow_connections(wanted: int) -> Files:
    """Ask the system for as many open files as connections need; return how many connections there can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_KEPT + TOPIC_FILES_MAX
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        soft = needed
    if soft == resource.RLIM_INFINITY:
        return Files(wanted, sys.maxsize, None)
    # Where there are few, half of them are for queues and topics: these open segments while connections come and go.
    number_max = soft - min(FILES_KEPT + files_for_topics(), soft // 2)
    return Files(min(wanted, max(1, number_max - _open_files())), number_max, soft)


def _open_files() -> int:
    try:
        return len([*Path("/proc/self/fd").iterdir()])
    except OSError:
        return 0
