"""Operations on sockets that a driver owns."""

import os
import socket
from contextlib import suppress


def shut_down(descriptor: int) -> None:
    """Shut a socket down in both directions. Its owner still closes it; a call that waits on it returns."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
        own.shutdown(socket.SHUT_RDWR)
