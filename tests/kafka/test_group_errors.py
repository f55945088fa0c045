"""Every refusal of a group has a number that Kafka's clients know."""

import pytest

from penstock.api.kafka.errors import REFUSALS, group_code_of
from penstock.core.consumer_group.requests import GroupRefusal


@pytest.mark.parametrize("kind", GroupRefusal.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_refusal_of_a_group_is_answered_with_a_number(kind: type[GroupRefusal]) -> None:
    assert issubclass(kind, REFUSALS)
    assert group_code_of(kind("why")) > 0


def test_there_are_refusals_to_be_answered() -> None:
    assert len(GroupRefusal.__subclasses__()) >= 15
