"""A store in two databases is told every story that any store is told."""

import pytest

from tests.conformance.stores import Story
from tests.postgres.stage import stories, tell


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.__name__.removeprefix("test_"))
def test_a_store_in_two_databases_keeps_every_promise(story: Story) -> None:
    tell(story)
