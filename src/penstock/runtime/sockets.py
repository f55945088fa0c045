"""What is done to sockets that belong to somebody else, a driver say."""

import os
import socket
from contextlib import suppress


def shut_down(descriptor: int) -> None:
    """End what comes and goes over a socket, and leave it to its owner to close: whoever waits on it wakes."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
        own.shutdown(socket.SHUT_RDWR)
