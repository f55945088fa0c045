"""One server for the tests that do not stop it, and a name for each topic of theirs."""

import warnings
from collections.abc import Iterator
from itertools import count

import pytest

from tests.kafka.brokers import Broker, RawClient

with warnings.catch_warnings():
    # kafka-python reads its tables in a way that Python 3.11 frowns on.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin  # noqa: F401

_numbers = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka") / "data") as found:
        yield found
        assert found.stop() == 0
        assert "kafka.failed" not in found.notes


@pytest.fixture
def raw(broker: Broker) -> Iterator[RawClient]:
    with RawClient((broker.host, broker.port)) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """A name that no topic of this run has had."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"
