"""How the tests run: `async def` tests in virtual time, Hypothesis without surprises.

An asynchronous test is a simulation of its own. One that takes a ``seed`` runs in a
loop of that seed, which shuffles its tasks. One marked `real_time` runs on the
machine's own event loop and clock instead.
"""

import asyncio
import inspect
import os
import signal

import hypothesis
import pytest

from penstock.pipeline.java import class_options
from penstock.pipeline.spark import SHORT_LIVED
from tests.simulation.loop import simulate
from tests.simulation.world import Machine

# Of every Java of the tests, the cluster's included.
os.environ.setdefault("JDK_JAVA_OPTIONS", f"{SHORT_LIVED} {class_options()}".strip())

# A process that a shell starts in the background ignores Ctrl-C, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Servers of tests run side by side, and there is one default port. Those that Kafka clients talk to say so.
os.environ["PENSTOCK_KAFKA"] = "false"

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=50)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if pyfuncitem.get_closest_marker("real_time"):
        asyncio.run(test(**arguments))
    else:
        seed = arguments.get("seed", 0)
        simulate(lambda: test(**arguments), seed=seed if isinstance(seed, int) else 0)
    return True


@pytest.fixture
def machine() -> Machine:
    """A machine with an empty disk, not started yet."""
    return Machine(seed=0)
