"""Eight processes on one queue. The same with ten times as many messages is in tests/chaos."""

import asyncio

from tests.postgres.crowds import leased_by_all, left_in
from tests.postgres.servers import shared_server


def test_no_message_is_leased_to_two_of_eight_processes_and_none_is_lost() -> None:
    url = shared_server().new_database()
    found = leased_by_all(url, processes=8, each=1_000)
    assert found == {b"%d/%d" % (number, nth): 1 for number in range(8) for nth in range(1_000)}
    assert asyncio.run(left_in(url)) == 0
