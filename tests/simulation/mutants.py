"""A test of the tests: the rules of replication, broken one at a time.

Each mutant is a replacement in the text of one module, made while it is imported
in a process of its own, so that the code itself has no switches. If the text of a
mutant is not found exactly once, the mutant is out of date: that is an error, not
a pass. Each must be caught in a bounded number of simulated lives.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, NamedTuple

REPLICA = "penstock.core.replica"
LOG = "penstock.cluster.replicated_log"
FOLLOWER = "penstock.cluster.follower"
MEMBERSHIP = "penstock.cluster.membership"
ELECTION = "penstock.cluster.election"
NODE = "penstock.cluster.node"


class Mutant(NamedTuple):
    name: str
    module: str
    before: str
    after: str
    # Those that bring it to light, if all together would take too long.
    faults: tuple[str, ...] = ()


class OutOfDate(Exception):
    """The text to be replaced is not there, or not only once."""


MUTANTS: tuple[Mutant, ...] = (
    # Truncation.
    Mutant(
        "t1-nothing-is-cut",
        FOLLOWER,
        "await self._disk.truncate(truncation_offset(self._disk.epochs, self._disk.end_offset, leader))",
        "await asyncio.sleep(0.01)",
    ),
    Mutant(
        "t1-cut-at-the-high-watermark",
        FOLLOWER,
        "self._disk.truncate(truncation_offset(self._disk.epochs, self._disk.end_offset, leader))",
        "self._disk.truncate(self.high_watermark)",
    ),
    Mutant(
        "t1-cut-where-the-leader-ends",
        REPLICA,
        "return min(leader.end_offset, ours.end_offset)",
        "return leader.end_offset",
    ),
    Mutant(
        "t2-a-shorter-log-is-a-part",
        REPLICA,
        "ours.epoch == follower.epoch and follower.end_offset <= ours.end_offset",
        "follower.end_offset <= ours.end_offset",
    ),
    # Positions and the high watermark.
    Mutant(
        "r1-reported-before-the-fsync",
        FOLLOWER,
        "        await self._disk.wait_durable(self._disk.end_offset)\n",
        "",
    ),
    Mutant(
        "r2-positions-of-an-older-epoch",
        REPLICA,
        "field(default_factory=dict)",
        "field(default_factory=lambda kept={}: kept)",
    ),
    Mutant("r2-fetches-of-an-older-epoch", LOG, "if fetch.epoch < self.epoch:", "if fetch.epoch < 0:"),
    Mutant(
        "r2-only-the-committed-isr-counts",
        REPLICA,
        "return self.isr if self.proposed is None else self.isr | self.proposed",
        "return self.isr",
    ),
    Mutant(
        "l1-what-is-inherited-is-acknowledged",
        NODE,
        "high_watermark=self._follower.high_watermark",
        "high_watermark=self._disk.end_offset",
    ),
    Mutant("r3-acknowledged-below-min-isr", REPLICA, "if len(self.isr) < self.min_isr:", "if not self.isr:"),
    # The ISR.
    Mutant("r4-shrunk-before-it-is-granted", REPLICA, "self.proposed = isr\n", "self.isr = self.proposed = isr\n"),
    Mutant("r4-joins-below-the-leaders-start", REPLICA, " and position.offset >= self.start_offset", ""),
    Mutant("r4-joins-below-the-high-watermark", REPLICA, "position.offset >= self.high_watermark and ", ""),
    Mutant(
        "f3-joins-with-an-old-broker-epoch",
        LOG,
        "self._membership.broker_epoch, **added}",
        "self._membership.broker_epoch}",
    ),
    Mutant(
        "m5-no-answer-means-no",
        LOG,
        " and (view.revision > self._revision or is_refused):",
        ":",
        faults=("slow_meta", "cut_one_way", "crash"),
    ),
    # Reading.
    Mutant("r5-read-above-the-high-watermark", LOG, " if header(batch).next_offset <= high_watermark]", "]"),
    Mutant("l2-read-before-all-is-known", LOG, "        await self.wait_durable(self._leadership.start_offset)\n", ""),
    Mutant(
        "r6-read-without-a-lease",
        LOG,
        "if not self._membership.has_lease:",
        "if False:",
        faults=("strand_leader",),
    ),
    Mutant(
        "r6-a-lapsed-lease-goes-on",
        MEMBERSHIP,
        "                await self.refresh()\n                #",
        "                #",
    ),
    Mutant(
        "r6-replaced-while-the-lease-runs",
        ELECTION,
        "without_lease=view.record.leader",
        "without_lease=None",
        faults=("slow_meta", "cut_from_meta", "pause_leader"),
    ),
    # Elections.
    Mutant("e1-anyone-is-elected", REPLICA, "if node in complete and node in unfenced:", "if node in unfenced:"),
    Mutant(
        "e1-the-elr-is-ignored", REPLICA, "for complete in (record.isr, record.elr):", "for complete in (record.isr,):"
    ),
    Mutant("e2-the-elr-stays", REPLICA, "elr = frozenset() if len(isr) >= record.min_isr else left", "elr = left"),
    Mutant("m2-the-epoch-is-not-raised", REPLICA, "leader=node, leader_epoch=record.leader_epoch + 1)", "leader=node)"),
    Mutant("f1-granted-without-fencing", ELECTION, "if fenced != view.record:", "if False:"),
    Mutant("f2-an-emptied-disk-is-trusted", REPLICA, "    if not is_whole:\n", "    if False:\n"),
)


def install(mutant: Mutant) -> None:
    """Change the module when it is imported, which must not have happened yet."""
    assert mutant.module not in sys.modules, "too late: the module is there already"
    sys.meta_path.insert(0, _Finder(mutant))


def mutate(mutant: Mutant, text: str) -> str:
    count = text.count(mutant.before)
    if count != 1:
        raise OutOfDate(f"{mutant.name}: {count} times in {mutant.module}, not once: {mutant.before!r}")
    return text.replace(mutant.before, mutant.after)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(self._mutant, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed text; never the cached bytecode of the true one, nor cache this."""
        text = mutate(self._mutant, self.get_data(self.path).decode())
        code: Any = compile(text, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code
