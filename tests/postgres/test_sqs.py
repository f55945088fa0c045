"""SQS on a database: the stories of `tests/sqs` that look at what a store does, told to a server on PostgreSQL.

What is refused before a store is asked is not repeated here.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.settings import ServerSettings
from tests.postgres.servers import shared_server
from tests.server.serving import Running, server
from tests.sqs import (
    test_beside_rest,
    test_dead_letters,
    test_fair_queues,
    test_fifo,
    test_queue_attributes,
    test_queues,
    test_recorded,
    test_send,
    test_settle,
)
from tests.sqs.conftest import client_of, made

STORIES = (
    test_send.test_what_was_sent_is_received_with_the_digest_of_its_body,
    test_send.test_message_attributes_of_every_type_come_back_exactly,
    test_send.test_the_largest_message_is_one_mebibyte,
    test_send.test_an_attribute_sets_the_priority_of_a_message,
    test_send.test_a_batch_answers_for_each_of_its_entries,
    test_settle.test_a_deleted_message_is_gone_and_deleting_it_again_is_no_error,
    test_settle.test_a_message_whose_visibility_is_zero_comes_back_at_once,
    test_settle.test_a_handle_is_good_for_its_own_queue_only,
    test_settle.test_a_batch_of_deletes_answers_for_each,
    test_settle.test_a_batch_of_changes_answers_for_each,
    test_fifo.test_a_group_is_in_order_and_with_one_consumer_at_a_time,
    test_fifo.test_a_message_of_a_fifo_queue_tells_its_group_its_id_and_its_sequence,
    test_fifo.test_the_content_is_the_id_where_the_queue_says_so,
    test_fifo.test_an_id_counts_in_all_groups_or_within_one,
    test_fifo.test_a_purge_forgets_the_ids_of_what_it_removed,
    test_fifo.test_a_group_is_open_again_as_soon_as_its_first_message_is_visible,
    test_fifo.test_a_batch_is_sent_in_its_order_and_each_entry_once,
    test_dead_letters.test_a_message_received_too_often_is_moved_with_its_id_its_time_and_its_count,
    test_dead_letters.test_the_sources_of_a_dead_letter_queue_are_listed_in_pages,
    test_dead_letters.test_a_move_task_sends_dead_letters_back_where_they_came_from,
    test_dead_letters.test_a_move_task_may_have_a_destination_a_rate_and_an_end,
    test_queues.test_making_a_queue_again_compares_only_what_is_said,
    test_queues.test_queues_are_listed_by_prefix_and_in_pages,
    test_queues.test_a_purge_removes_everything_and_may_be_repeated_at_once,
    test_queues.test_a_deleted_queue_is_gone_and_its_name_is_free_at_once,
    test_queues.test_counts_tell_where_messages_are,
    test_queue_attributes.test_every_attribute_that_can_be_set_is_read_back,
    test_queue_attributes.test_tags_are_kept_changed_and_removed,
    test_recorded.test_a_queue_may_name_itself_as_its_dead_letter_queue_and_keeps_its_messages,
    test_fair_queues.test_a_tenant_with_thirty_messages_in_flight_waits_behind_quiet_ones,
    test_fair_queues.test_thresholds_are_set_through_rest_and_metrics_tell_who_is_noisy,
    test_beside_rest.test_what_sqs_sends_rest_receives_with_sensible_values,
    test_beside_rest.test_what_rest_sends_sqs_receives,
    test_beside_rest.test_dead_letters_of_rest_are_dead_letters_of_sqs,
    test_beside_rest.test_a_full_queue_is_throttled_as_the_sdk_knows_it,
)


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("sqs")
    settings = ServerSettings(port=0, data=folder, store=shared_server().new_database(), sqs=True)
    with server(settings) as found:
        yield found


@pytest.fixture(scope="module")
def client(on_postgres: Running) -> Iterator[Any]:
    found = client_of(on_postgres.url)
    yield found
    found.close()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__.removeprefix("test_"))
def test_sqs_on_a_database_is_what_it_is_elsewhere(
    on_postgres: Running, client: Any, story: Callable[..., None]
) -> None:
    parts: dict[str, Callable[[], Any]] = {
        "sqs": lambda: client,
        "running": lambda: on_postgres,
        "queue": lambda: made(client),
        "fifo": lambda: made(client, suffix=".fifo", FifoQueue="true", ContentBasedDeduplication="true"),
    }
    story(**{name: parts[name]() for name in inspect.signature(story).parameters})
