"""The pipeline on other clusters than a standalone one: each is half a minute of starting processes."""

from pathlib import Path

import pytest

import penstock
from tests.pipeline import clusters
from tests.pipeline.cluster_site import PACKAGE, Site, check, prepare, ran, site, submitted

pytestmark = [pytest.mark.slow, pytest.mark.real_time]
__all__ = ["site"]


def test_a_cluster_in_one_process_tree_runs_what_is_shipped(site: Site) -> None:
    told = submitted(site, "local-cluster[2,1,1024]", "copies-local")

    check(site, told, "copies-local")


def test_a_job_that_is_told_the_cluster_ships_its_own_package(site: Site) -> None:
    with clusters.standalone(site.folder, workers=2) as master:
        looked = ran(site, "looked.json", master, imports=Path(penstock.__file__).parents[1])

    assert looked["driver"] == penstock.__file__
    assert {PACKAGE in file for file, _ in looked["executors"]} == {True}


def test_a_client_of_spark_connect_ships_the_package_itself(site: Site) -> None:
    prepare(site, "copies-connect")
    with clusters.connect_server(site.folder) as remote:
        told = ran(site, "connect.json", site.url, "copies-connect", remote, site.shipped, imports=site.shipped)

    check(site, told, "copies-connect")
