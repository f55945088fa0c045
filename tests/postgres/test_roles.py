"""The role of a program that may use queues, and change no table: what the manual grants it is enough."""

import psycopg
import pytest

import penstock
from tests.postgres.servers import shared_server

# As docs/how-to/run-on-postgresql.md has them.
GRANTS = """
CREATE ROLE penstock_server LOGIN;
GRANT USAGE ON SCHEMA penstock TO penstock_server;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO penstock_server;
GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA penstock TO penstock_server;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA penstock TO penstock_server;
"""


def test_a_role_with_few_rights_sends_and_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    server = shared_server()
    dsn = server.new_database()
    with penstock.connect(dsn) as owner:
        owner.create_queue("orders")
    with psycopg.connect(dsn) as connection:
        connection.execute(GRANTS)
    monkeypatch.setenv("PENSTOCK_POSTGRES_MIGRATES", "false")
    with penstock.connect(dsn.replace("postgres@", "penstock_server@")) as client:
        client.queue("orders").send("teapot")
        message = client.queue("orders").receive()
        assert message is not None
        message.ack()
        assert client.queue("orders").describe().current_message_count == 0
