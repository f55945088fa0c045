"""Many simulated lives, from many seeds: `python -m tests.simulation --seeds 200`.

Two processes share the seeds. A life that breaks a promise is printed with the
command that repeats it, and the exit status is 10; it is 11 if the life ended by an
error of another kind. With `--mutant` one rule of the code is broken first: then a
status of 10 says that this was noticed.
"""

import argparse
import importlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation import mutants
from tests.simulation.log_mutants import LOG_MUTANTS
from tests.simulation.store_mutants import STORE_MUTANTS

LIVES = ("log_life", "log_crashes", "store_crashes", "store_life", "shards_life")

# The lives that bring a mutant to light, by how its name begins.
KNOWN_BY_PREFIX = {
    "log": ["log_crashes", "log_life"],
    "store": ["store_crashes", "store_life"],
    "history": ["store_life"],
    "moves": ["shards_life"],
}

ALL = (*LOG_MUTANTS, *STORE_MUTANTS)

# Not 1 or 2: that is how Python itself ends when something else is wrong.
PROMISE_BROKEN = 10
OTHER_ERROR = 11


class Job(NamedTuple):
    life: str
    seed: int


class End(NamedTuple):
    """How a life ended."""

    life: str
    seed: int
    status: int = 0
    failure: str = ""
    virtual_s: float = 0.0


def main() -> int:
    options = _options()
    if options.mutant is not None:
        mutants.install(find(options.mutant))
    if options.seed is not None:
        options.first, options.seeds, options.processes = options.seed, 1, 1
    jobs = [Job(life, seed) for seed in range(options.first, options.first + options.seeds) for life in options.life]
    return _run_all(jobs, mutant=options.mutant, processes=options.processes)


def find(name: str) -> mutants.Mutant:
    for mutant in ALL:
        if mutant.name == name:
            return mutant
    raise SystemExit(f"There is no mutant {name}. There are: {', '.join(mutant.name for mutant in ALL)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run only this one, here")
    parser.add_argument("--mutant", help="break one rule first: " + ", ".join(mutant.name for mutant in ALL))
    parser.add_argument("--life", action="append", choices=LIVES, help="what to simulate (all)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    known = LIVES if options.mutant is None else KNOWN_BY_PREFIX[options.mutant.split("-")[0]]
    options.life = options.life or known
    return options


def _run_all(jobs: list[Job], *, mutant: str | None, processes: int) -> int:
    started_at = time.monotonic()
    virtual_s = 0.0
    for done, end in enumerate(_ends(jobs, processes), start=1):
        virtual_s += end.virtual_s
        if end.status:
            broken = "" if mutant is None else f" --mutant {mutant}"
            command = f"python -m tests.simulation --life {end.life} --seed {end.seed}{broken}"
            _say(f"\n{end.failure}\n\nRepeat it with: {command}")
            return end.status
        passed_s = time.monotonic() - started_at
        if sys.stderr.isatty() or done == len(jobs):
            rate = virtual_s / passed_s if passed_s else 0.0
            _say(
                f"\r{done} of {len(jobs)} lives, {virtual_s:.0f} virtual seconds in {passed_s:.0f} s ({rate:.0f}/s)",
                end="",
            )
    _say("")
    return 0


def _ends(jobs: list[Job], processes: int) -> Iterator[End]:
    if processes <= 1:
        yield from map(_live, jobs)
        return
    # Forked, so that a mutant is inherited.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(_live, jobs)


def _live(job: Job) -> End:
    life, seed = job
    module = importlib.import_module(f"tests.simulation.{life}")
    try:
        summary = module.run(seed)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        status = PROMISE_BROKEN if _is_broken_promise(error) else OTHER_ERROR
        return End(life, seed, status, "".join(traceback.format_exception(error)))
    return End(life, seed, virtual_s=getattr(summary, "virtual_s", 0.0))


def _is_broken_promise(error: BaseException) -> bool:
    """Whether an assertion is at the bottom of it."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_broken_promise, error.exceptions))
    return isinstance(error, AssertionError) or (error.__cause__ is not None and _is_broken_promise(error.__cause__))


def _say(text: str, *, end: str = "\n") -> None:
    print(text, file=sys.stderr, end=end, flush=True)  # noqa: T201 -- A command line.


if __name__ == "__main__":
    sys.exit(main())
