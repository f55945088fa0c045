"""Small logs on a simulated machine, for tests that look at every byte of them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.segment import segment_name
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from tests.simulation.clock import EPOCH_MS
from tests.simulation.loop import simulate
from tests.simulation.world import Machine

T = TypeVar("T")

FOLDER = "small"
FIRST = f"{FOLDER}/{segment_name(0)}"
SETTINGS = LogSettings(allocate_bytes=0, spare_bytes=0, index_every_bytes=200)
ROLLING = LogSettings(allocate_bytes=0, spare_bytes=0, index_every_bytes=200, segment_bytes_max=400)


def encode(*bodies: bytes, at_ms: int = EPOCH_MS) -> bytearray:
    return record.encode([(None, body) for body in bodies], at_ms=at_ms)


async def append(log: DiskLog, *bodies: bytes, at_ms: int = EPOCH_MS) -> int:
    """Append one batch and wait until it is durable."""
    batch = encode(*bodies, at_ms=at_ms)
    with log.reserve(len(batch)) as space:
        offset = log.append(batch, space)
    await log.wait_durable(log.end_offset)
    return offset


async def bodies(log: DiskLog, start: int | None = None, bytes_max: int = 1 << 20) -> list[bytes | None]:
    """Return the value of every record from ``start`` on; None for each offset lost in a hole."""
    found: list[bytes | None] = []
    offset = log.start_offset if start is None else start
    while offset < log.durable_offset:
        for batch in await log.read(offset, bytes_max=bytes_max):
            header = record.header(batch)
            assert header.base_offset <= offset < header.next_offset
            values = [bytes(entry.value or b"") for entry in record.records(batch)]
            found += [None] * (header.next_offset - header.base_offset) if header.is_hole else values
            offset = header.next_offset
    return found


def on(machine: Machine, use: Callable[[DiskLog], Awaitable[T]], settings: LogSettings = SETTINGS) -> T:
    """Start a process, open the log, use it, and kill the process; return what ``use`` returns."""

    async def process(runtime: Runtime) -> T:
        return await use(await DiskLog.open(runtime, FOLDER, settings))

    async def main() -> T:
        return await machine.run(process(machine.start()))

    try:
        return simulate(main)
    finally:
        if machine.is_running:
            machine.kill()


def contents(machine: Machine, settings: LogSettings = SETTINGS) -> list[bytes | None]:
    return on(machine, bodies, settings)


def written(count: int, *, end: str = "kill", settings: LogSettings = SETTINGS, seed: int = 0) -> Machine:
    """Return a machine whose log holds ``count`` commits `b"0"`, `b"1"`, …, each of one record."""
    machine = Machine(seed)

    async def fill(log: DiskLog) -> None:
        for number in range(count):
            await append(log, str(number).encode())
        if end == "close":
            await log.close()

    on(machine, fill, settings)
    return machine
