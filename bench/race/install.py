"""Fetches peers into a folder of the checkout, without installing them on the machine.

    python -m bench.race.install redis nats rabbitmq pgmq plots

Servers are packages of Debian, unpacked into `.race` and not installed: nothing is started, and removing the folder
removes them. Their Python clients are wheels beside them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSTALLED = Path(__file__).parent.parent.parent / ".race"
ROOT = INSTALLED / "root"
PYTHON = INSTALLED / "python"
# What to fetch beside packages that the machine has anyway.
PACKAGES = {"redis": "redis-server", "nats": "nats-server", "rabbitmq": "rabbitmq-server"}
WHEELS = {
    "redis": ["redis", "hiredis"],
    "nats": ["nats-py"],
    "rabbitmq": ["aio-pika"],
    "pgmq": ["pgmq"],
    "moto": [],
    "plots": ["matplotlib"],
}


def program(name: str) -> str | None:
    """Return the path of a program, of the machine or of the folder."""
    places = os.pathsep.join(str(ROOT / part) for part in ("usr/bin", "usr/sbin", "usr/lib/erlang/bin"))
    return shutil.which(name) or shutil.which(name, path=places)


def libraries() -> str:
    """The folders of the libraries that were fetched, for `LD_LIBRARY_PATH`."""
    return os.pathsep.join(map(str, (ROOT / "usr/lib").glob("*-linux-gnu")))


def use_wheels() -> None:
    if str(PYTHON) not in sys.path:
        sys.path.append(str(PYTHON))


def _fetch_package(name: str) -> None:
    if program(name) is not None:
        return
    folder = INSTALLED / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    simulated = subprocess.run(
        ["apt-get", "--simulate", "install", "--no-install-recommends", name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = [line.split()[1] for line in simulated.splitlines() if line.startswith("Inst ")]
    subprocess.run(["apt-get", "download", *wanted], cwd=folder, check=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(ROOT)], check=True)
    _move_erlang()


def _move_erlang() -> None:
    """Tell the scripts of Erlang where they are: Debian's have the usual place written into them."""
    for script in ROOT.glob("usr/lib/erlang/**/bin/erl"):
        text = script.read_text()
        script.write_text(text.replace("ROOTDIR=/usr/lib/erlang\n", f"ROOTDIR={ROOT}/usr/lib/erlang\n"))


def main() -> None:
    wanted = sys.argv[1:]
    if not wanted or set(wanted) - WHEELS.keys():
        sys.exit(f"what is to be fetched? There are: {' '.join(WHEELS)}")
    for peer in wanted:
        if peer in PACKAGES:
            _fetch_package(PACKAGES[peer])
        if WHEELS[peer]:
            uv = str(Path(sys.executable).parent / "uv")
            subprocess.run(
                [
                    uv,
                    "pip",
                    "install",
                    "--quiet",
                    "--python",
                    sys.executable,
                    "--target",
                    str(PYTHON),
                    *WHEELS[peer],
                ],
                check=True,
            )
        print(f"{peer}: fetched into {INSTALLED}")


if __name__ == "__main__":
    main()
