"""A test of the tests: rules of the code, broken one at a time.

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


class Mutant(NamedTuple):
    name: str
    module: str
    before: str
    after: str


class OutOfDate(Exception):
    """The text to be replaced is not there, or not only once."""


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
