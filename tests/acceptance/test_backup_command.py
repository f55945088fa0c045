"""`penstock backup`: a copy made beside a running process, and opened in its place."""

import asyncio
from pathlib import Path

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.store import EmbeddedStore
from tests.acceptance.test_repair_command import penstock, read_all, write_and_close


def test_a_log_is_copied_and_the_copy_opens(tmp_path: Path) -> None:
    asyncio.run(write_and_close(tmp_path))
    done = penstock("backup", tmp_path / "orders", tmp_path / "copies" / "orders")
    assert done.returncode == 0, done.stderr
    assert "Copied 1 segment" in done.stdout
    assert asyncio.run(read_all(tmp_path / "copies")) == [b"order %d" % number for number in range(5)]


def test_a_store_is_copied_while_it_works_and_restored_with_everything_acknowledged_before(tmp_path: Path) -> None:
    async def send_and_copy() -> None:
        async with ThreadWorkers(2, halt) as workers:
            store = await EmbeddedStore.open(system_runtime(tmp_path, workers), "data")
            await store.create("orders", QueueSettings())
            await store.send("orders", Drafts(bodies=[b"before"]))
            done = await asyncio.to_thread(penstock, "backup", tmp_path / "data", tmp_path / "copy")
            assert done.returncode == 0, done.stderr
            await store.send("orders", Drafts(bodies=[b"after"]))
            await store.close()

    async def restored() -> list[bytes]:
        async with ThreadWorkers(2, halt) as workers:
            store = await EmbeddedStore.open(system_runtime(tmp_path, workers), "copy")
            delivery = await store.lease("orders", want=10)
            await store.close()
            return [] if delivery is None else list(map(bytes, delivery.bodies))

    asyncio.run(send_and_copy())
    assert asyncio.run(restored()) == [b"before"]


def test_a_store_that_has_dropped_its_beginning_is_copied_with_the_snapshot_that_replaces_it(tmp_path: Path) -> None:
    small = LogSettings(segment_bytes_max=64 * 1024, allocate_bytes=64 * 1024, spare_bytes=0)

    async def work_and_copy() -> None:
        async with ThreadWorkers(2, halt) as workers:
            store = await EmbeddedStore.open(system_runtime(tmp_path, workers), "data", small, upkeep_ms=1)
            await store.create("orders", QueueSettings())
            await store.send("orders", Drafts(bodies=[b"kept"]))
            held = await store.lease("orders", want=1, lease_ms=43_200_000)
            assert held is not None
            journal = tmp_path / "data" / "journal"
            while (journal / f"{0:020}.log").exists():
                await store.send("orders", Drafts(bodies=[bytes(1_000)] * 40))
                delivery = await store.lease("orders", want=40)
                assert delivery is not None
                await store.ack("orders", delivery.receipts())
            done = await asyncio.to_thread(penstock, "backup", tmp_path / "data", tmp_path / "copy")
            assert done.returncode == 0, done.stderr
            await store.close()

    async def restored() -> list[bytes]:
        async with ThreadWorkers(2, halt) as workers:
            store = await EmbeddedStore.open(system_runtime(tmp_path, workers), "copy", small)
            seen = (await store.peek("orders", most=10)).messages
            counts = await store.counts("orders")
            await store.close()
            assert counts.leased == 1
            return [bytes(message.body) for message in seen]

    asyncio.run(work_and_copy())
    assert asyncio.run(restored()) == [b"kept"]


def test_a_backup_writes_nothing_over(tmp_path: Path) -> None:
    asyncio.run(write_and_close(tmp_path))
    done = penstock("backup", tmp_path / "orders", tmp_path / "orders")
    assert done.returncode == 2
    assert "is not empty" in done.stderr


def test_a_backup_of_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    done = penstock("backup", tmp_path, tmp_path / "copy")
    assert done.returncode == 2
    assert "there is no log in" in done.stderr
    assert not (tmp_path / "copy").exists()
