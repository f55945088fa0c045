"""Addresses of servers and keys for them, as options and jobs are given them, and what is wrong with one for good."""

import socket
import ssl
from urllib.parse import urlsplit


def is_server(url: str) -> bool:
    """Whether this can be the address of a server: a user, a password and a query are for nobody, and refused.

    >>> [is_server(url) for url in ("https://queues.example.com:8080/front", "queues:8080", "http://", "http://a:b@h")]
    [True, False, False, False]
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return is_good and not parts.query and not parts.fragment and parts.username is None


def is_key(key: str) -> bool:
    """Whether a header can carry this key. Who finds that it cannot says so without the key.

    >>> [is_key(key) for key in ("", "sesame", "two words", "sesame\\n", "clé")]
    [True, True, True, False, False]
    """
    return key.isascii() and key.isprintable()


def lasting_problem(error: BaseException) -> str:
    """Return what is wrong with the name or the TLS of a server, if no second try mends it; else nothing."""
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
        return "no machine is known by this name here"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. For an authority of your own, set SSL_CERT_FILE "
            "where the driver and the executors run"
        )
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "what answers speaks no TLS: the address may begin with http://"
    return ""
