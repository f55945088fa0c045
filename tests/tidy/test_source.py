"""The source keeps the rules of STYLE.md that a machine can check."""

import pytest

from tests.tidy.rules import RULES, Rule
from tests.tidy.source import python_modules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    broken = [line for module in python_modules() for line in rule(module)]

    assert not broken, "\n" + "\n".join(broken)


def test_the_rules_see_the_whole_source() -> None:
    seen = {module.path.parts[0] for module in python_modules()}

    assert {"src", "tests"} <= seen
