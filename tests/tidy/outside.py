"""Nothing in core, log, store or cluster touches the outside world by itself.

A simulation is only as true as this rule: one `time.time()` in the log, and a
seed no longer means the same run twice. import-linter forbids the imports; this
rule also sees a builtin `open`, a thread started through asyncio, and a module
that takes the real disk instead of the interface.
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Module

_INSIDE = {"contract", "core", "log", "store", "cluster"}

_OUTSIDE_MODULES = {
    *("concurrent", "ctypes", "datetime", "fcntl", "glob", "importlib", "io", "mmap", "multiprocessing", "os"),
    *("pathlib", "posix", "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket"),
    *("subprocess", "tempfile", "threading", "time", "uuid"),
}
_OUTSIDE_THE_CORE = {"asyncio", "logging"}

_OUTSIDE_BUILTINS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
_OUTSIDE_ASYNCIO = {
    *("create_subprocess_exec", "create_subprocess_shell", "open_connection", "open_unix_connection", "run"),
    *("run_in_executor", "start_server", "start_unix_server", "to_thread"),
}

# Files that come with the package, such as statements in SQL, are as constant as its code.
_OWN_FILES = "importlib.resources"
_RUNTIME = "penstock.runtime"
_RUNTIME_SEAM = "penstock.runtime.interface"
# The socket of a driver, which is outside itself: there is no simulated one that could be given instead.
_DRIVER_SOCKETS = "penstock.runtime.sockets"


def reaches_outside_only_through_the_runtime(module: Module) -> Iterator[str]:
    if module.package not in _INSIDE:
        return
    for node in ast.walk(module.tree):
        for what in _reaches(node, is_core=module.package == "core"):
            yield f"{module.path}:{getattr(node, 'lineno', 1)}: {what}; ask the runtime, or take it as an argument"


def _reaches(node: ast.AST, *, is_core: bool) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for name in _imported(node):
            if _is_outside(name, is_core=is_core):
                yield f"imports `{name}`"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in _OUTSIDE_BUILTINS:
            yield f"calls `{node.func.id}`"
    elif isinstance(node, ast.Attribute) and _is_asyncio_outside(node):
        yield f"uses `{node.attr}`"


def _is_asyncio_outside(node: ast.Attribute) -> bool:
    """`run` is asyncio's only where asyncio says so; the other names are asyncio's alone."""
    said_by_asyncio = isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    return node.attr in _OUTSIDE_ASYNCIO and (said_by_asyncio or node.attr != "run")


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]


def _is_outside(name: str, *, is_core: bool) -> bool:
    if not is_core and (name == _OWN_FILES or name.startswith(f"{_DRIVER_SOCKETS}.")):
        return False
    top = name.partition(".")[0]
    if top in _OUTSIDE_MODULES or (is_core and top in _OUTSIDE_THE_CORE):
        return True
    if name == _RUNTIME or name.startswith(f"{_RUNTIME}."):
        return not name.startswith(f"{_RUNTIME_SEAM}.") and name != _RUNTIME_SEAM
    last = name.rpartition(".")[2]
    return top == "asyncio" and last in _OUTSIDE_ASYNCIO
