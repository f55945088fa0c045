"""Ports of this machine that stay a test's own while no server listens there.

A server that stops gives its port back, and another program may get it before the server starts again. A socket that is
bound and never listens keeps it: the system gives the port to no other program, and connections are refused. A server
that names the port, and shares it as servers do, gets it.
"""

import socket

HOST = "127.0.0.1"


class HeldPort:
    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, 0))
        self.number: int = self._socket.getsockname()[1]

    def give_back(self) -> None:
        self._socket.close()
