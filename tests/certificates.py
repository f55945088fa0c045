"""Certificates that vouch for themselves, for servers of tests. `openssl` makes them; without it, a test is skipped."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

_MADE = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"


class Certificate(NamedTuple):
    """The files of a certificate and of its key."""

    cert: Path
    key: Path


def make_certificate(folder: Path, *, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
    """Make one for ``names``, as `subjectAltName` has them."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("certificates are made by openssl")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    files = ["-addext", f"subjectAltName={names}", "-out", str(made.cert), "-keyout", str(made.key)]
    subprocess.run([openssl, *_MADE.split(), *files], check=True, capture_output=True, timeout=120)
    return made
