"""Every broken rule is noticed: each mutant is caught within a bounded number of lives.

Those that take many lives to be caught are in `tests/chaos/test_mutants.py`.
"""

import subprocess
import sys

import pytest

from tests.simulation.__main__ import ALL, PROMISE_BROKEN
from tests.simulation.mutants import Mutant, OutOfDate, mutate
from tests.tidy.source import ROOT

LIVES_MAX = 400
# Without its rule a store may bury the same message for ever. A life that does not end is noticed, too.
ENDLESS = {"store-a-burial-only-adds": 60}
ELUSIVE = frozenset(
    {
        "history-is-not-waited-for-by-deletions",
        "moves-settled-before-they-have-arrived-for-good",
        "moves-that-arrived-are-forgotten",
        "store-dropped-beyond-the-snapshot-before",
        "log-closed-without-a-sync",
        "log-kept-tail-is-not-synced",
        "log-leftovers-stay",
        "log-manifest-acted-upon-too-early",
        "log-marker-claims-too-much",
        "log-memory-is-trusted",
        "log-torn-tail-stays",
        "store-a-burial-only-adds",
        "store-dedup-ids-are-not-written-down",
    }
)
QUICK = [mutant for mutant in ALL if mutant.name not in ELUSIVE]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", QUICK, ids=[mutant.name for mutant in QUICK])
def test_a_broken_rule_is_noticed(mutant: Mutant) -> None:
    check_is_noticed(mutant)


def check_is_noticed(mutant: Mutant) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--mutant", mutant.name, "--seeds", str(LIVES_MAX)]
    timeout_s = ENDLESS.get(mutant.name)
    try:
        run = subprocess.run(
            [*command, "--processes", "1"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return
    assert run.returncode == PROMISE_BROKEN, f"{mutant.name} lived {LIVES_MAX} lives:\n{run.stderr[-3_000:]}"


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_every_mutant_finds_its_text_in_the_source(mutant: Mutant) -> None:
    source = ROOT / "src" / (mutant.module.replace(".", "/") + ".py")
    assert mutate(mutant, source.read_text()) != source.read_text()


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    with pytest.raises(OutOfDate):
        mutate(Mutant("old", "penstock.core.queue.retry", "no such text", ""), "some text")
    with pytest.raises(OutOfDate):
        mutate(Mutant("vague", "penstock.core.queue.retry", "a", ""), "a text, and a text")
