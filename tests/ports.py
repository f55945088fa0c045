"""Ports of this machine that stay a test's own while nobody listens there.

A server that is stopped gives its port back, and whoever asks for any port may be given just that one before the server
is started again. A socket that is bound and never listens keeps it: the system hands the port to nobody, those who
connect are refused, and a server that names the port, and may share it as servers do, gets it.
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
