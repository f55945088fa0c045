"""The end of what a client says, also to a server that has hung up before."""

import errno
import socket


def end_speech(connection: socket.socket) -> None:
    """Tell the other side that nothing more will come.

    A peer that has reset the connection cannot be told, which is no `ConnectionError` to the system but a socket that
    is not connected. Whether a client meets it there or when it reads is a matter of who was faster.
    """
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
