"""A store in two databases is told the stories of several queues; `make chaos` tells it all of them."""

import pytest

from tests.conformance.stores import Story
from tests.postgres.stage import stories, tell

_TOLD = (
    "test_a_page_has_a_limit_that_is_named",
    "test_a_queue_is_found_by_its_id_as_long_as_it_is_there",
    "test_queues_do_not_see_each_others_messages",
    "test_ids_belong_to_their_queue",
    "test_a_receipt_is_worth_nothing_at_another_queue",
    "test_a_watcher_is_called_for_every_send",
    "test_a_dead_letter_tells_its_past",
    "test_dead_letters_may_be_deleted_with_their_queue",
    "test_redriven_messages_go_back_to_where_they_came_from",
    "test_the_history_of_a_shard_has_the_rows_of_all_its_queues",
    "test_a_history_is_read_in_parts_that_join_without_a_gap",
    "test_trimming_lets_go_of_nothing_that_was_not_read",
    "test_every_number_of_a_range_is_live_or_told_of_in_the_history",
)


@pytest.mark.parametrize("name", _TOLD)
def test_a_store_in_two_databases_keeps_the_promises_about_several_queues(name: str) -> None:
    found: list[Story] = [story for story in stories() if story.__name__ == name]
    assert len(found) == 1
    tell(found[0])
