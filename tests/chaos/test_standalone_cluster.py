"""The pipeline on a cluster: executors that have no Penstock get it in a zip, and do the same as one machine does.

A cluster takes many seconds to start, so it does everything at once: `cluster_job.py`. `test_clusters.py` has the
other kinds.
"""

import subprocess
from pathlib import Path

import pytest

from tests.pipeline import clusters
from tests.pipeline.cluster_site import Site, check, site, submitted

pytestmark = [pytest.mark.slow, pytest.mark.real_time]
__all__ = ["site"]


def test_the_python_of_the_executors_has_no_penstock_of_its_own(site: Site) -> None:
    command: list[str | Path] = [site.folder / clusters.PYTHON, "-c", "import pyspark, pyarrow; import penstock"]
    done = subprocess.run(
        command, env=clusters.environment(site.folder), cwd=site.folder, capture_output=True, text=True, check=False
    )

    assert "ModuleNotFoundError: No module named 'penstock'" in done.stderr


def test_a_standalone_master_with_two_workers_runs_what_is_shipped(site: Site) -> None:
    with clusters.standalone(site.folder, workers=2) as master:
        told = submitted(site, master, "copies-standalone")

    check(site, told, "copies-standalone")
