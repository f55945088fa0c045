"""Consumers are woken before the disk is asked: what they lease becomes durable together with what woke them."""

from tests.store.small import opened


async def test_a_watcher_is_called_before_the_event_is_durable() -> None:
    shop = await opened()
    seen: list[tuple[int, bool]] = []

    def wake(name: str) -> None:
        ready = sum(shop.shard.queue(name).state.ready)
        seen.append((ready, shop.log.durable_offset < shop.log.end_offset))

    shop.store.watch(wake)
    await shop.send(b"a", b"b")
    assert seen == [(2, True)]
    await shop.close()
