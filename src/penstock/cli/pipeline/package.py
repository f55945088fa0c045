"""`penstock pipeline package`: what a cluster needs of Penstock, as one file. `prepare`: a quicker start of Spark."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import ExitCode, counted, refuse, show

DRIVER_NAME = "run_penstock.py"


def package(
    target: Annotated[Path, typer.Argument(help="The zip to write.", dir_okay=False)] = Path("penstock.zip"),
    *,
    driver: Annotated[
        Path | None, typer.Option("--driver", help="Also write a script for spark-submit to start.", dir_okay=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the zip that spark-submit ships to executors.

    Executors need Python, pyarrow and this file; what runs the job needs penstock\\[spark] as well.

    [bold]Examples:[/]

    penstock pipeline package penstock.zip --driver run_penstock.py
    spark-submit --py-files penstock.zip run_penstock.py archive http://queue:8080 s3://bucket/archive
    """
    from penstock.pipeline.spark import DRIVER, write_package

    try:
        count = write_package(target)
        if driver is not None:
            driver.write_text(DRIVER)
    except OSError as error:
        refuse(str(error), ExitCode.NOT_FOUND)
    line = f"spark-submit --py-files {target} {driver or DRIVER_NAME} archive http://127.0.0.1:8080 ./archive"
    shown = [f"Wrote {target}: {counted(count, 'file')}, {target.stat().st_size:,} bytes. Ship it with:", f"  {line}"]
    if driver is None:
        shown.append(f"  ({DRIVER_NAME} is written by --driver {DRIVER_NAME})")
    value = {"package": str(target), "files": count, "driver": None if driver is None else str(driver)}
    show(value, *shown, as_json=as_json)


def prepare(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False
) -> None:
    """Make Spark start sooner on this machine: half of what a short job costs is loading Java's classes.

    It writes an archive of them, some 200 MB, beside Python's packages, or into the user's cache if that
    cannot be written. Jobs on this machine use it from then on. Run it once, and again after Java or Spark
    was changed; in a Dockerfile, after the packages are installed.

    [bold]Example:[/]

    penstock pipeline prepare
    """
    if importlib.util.find_spec("pyspark") is None:
        refuse("Spark is not installed. Install it with: pip install 'penstock[spark]'", ExitCode.UNREACHABLE)
    from penstock.cli.pipeline.options import JvmOutput
    from penstock.pipeline.java_classes import make
    from penstock.pipeline.job import JobFailed
    from penstock.pipeline.spark import NoSpark

    said = JvmOutput()
    try:
        with said.begin():
            place = make()
    except (JobFailed, NoSpark) as error:
        refuse(str(error), ExitCode.UNREACHABLE)
    finally:
        said.forget()
    size = place.stat().st_size
    show({"archive": str(place), "bytes": size}, f"Wrote {place}: {size:,} bytes.", as_json=as_json)
