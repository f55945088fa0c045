"""The broken rules that take many simulated lives to be noticed."""

import pytest

from tests.simulation.__main__ import ALL
from tests.simulation.mutants import Mutant
from tests.simulation.test_mutants import ELUSIVE, check_is_noticed

SLOW = [mutant for mutant in ALL if mutant.name in ELUSIVE]


@pytest.mark.parametrize("mutant", SLOW, ids=[mutant.name for mutant in SLOW])
def test_a_broken_rule_that_hides_well_is_noticed_too(mutant: Mutant) -> None:
    check_is_noticed(mutant)


def test_every_elusive_mutant_is_a_mutant_still() -> None:
    assert {mutant.name for mutant in SLOW} == ELUSIVE
