"""The PostgreSQL that tests run on: that it is a real one, with its disk synced, and comes back after a kill."""

import psycopg
import pytest

from tests.postgres.servers import NoPostgres, Server, installed, programs, shared_server


def _ask(dsn: str, question: bytes) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question).fetchone()
    assert row is not None
    return row[0]


def test_the_server_of_the_tests_syncs_to_disk() -> None:
    assert _ask(shared_server().dsn, b"SHOW fsync") == "on"
    assert _ask(shared_server().dsn, b"SHOW synchronous_commit") == "on"


def test_each_database_of_the_shared_server_is_empty() -> None:
    first, second = shared_server().new_database(), shared_server().new_database()
    with psycopg.connect(first, autocommit=True) as connection:
        connection.execute("CREATE TABLE mine ()")

    assert _ask(second, b"SELECT to_regclass('mine')") is None


def test_a_killed_server_comes_back_with_what_was_committed() -> None:
    with Server() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        before = server.pid
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn)
        server.start()

        assert server.pid != before
        assert _ask(server.dsn, b"SELECT number FROM kept") == 7
    assert not server.folder.exists()


def test_a_version_that_is_not_there_is_an_error() -> None:
    assert programs(installed()[-1].version) == installed()[-1]
    with pytest.raises(NoPostgres, match="no PostgreSQL 7"):
        programs(7)
