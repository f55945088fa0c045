"""Gives a test that asks for a `seed` the seed of this run."""

import os
import secrets

import pytest

SEED = int(os.environ.get("CHAOS_SEED", secrets.randbelow(10**9)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", [SEED])
