"""`client/sync.pyi`: what editors and type checkers know of the synchronous API, made from the asynchronous classes."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

CLIENT = ROOT / "src" / "penstock" / "client"
STUB = CLIENT / "sync.pyi"

# The module of each asynchronous class, by the synchronous class that mirrors it.
_MIRRORED = {
    "SyncMessage": ("message.py", "Message"),
    "SyncBatch": ("message.py", "Batch"),
    "SyncQueue": ("queue.py", "Queue"),
    "SyncTopic": ("topics/topic.py", "Topic"),
    "SyncClient": ("client.py", "Client"),
}
_NAMES = {asynchronous: own for own, (_, asynchronous) in _MIRRORED.items()}
_PLAIN = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
_ITERATORS = {"AsyncIterator", "AsyncGenerator"}


def stub() -> str:
    """Return the text of the stub."""
    own = ast.parse((CLIENT / "sync.py").read_text())
    classes = [_stub_of(each) for each in own.body if isinstance(each, ast.ClassDef) and each.name in _MIRRORED]
    used = {node.id for each in classes for node in ast.walk(each) if isinstance(node, ast.Name)}
    lines = [
        '"""The synchronous API, made by `python -m tests.docs.reference`: edit the asynchronous classes instead."""'
    ]
    lines += sorted({line for name, line in _imports().items() if name in used - set(_MIRRORED)})
    lines += [ast.unparse(each) for each in classes]
    return formatted("\n\n".join(lines), STUB)


def _stub_of(own: ast.ClassDef) -> ast.ClassDef:
    path, name = _MIRRORED[own.name]
    mirrored = next(
        each
        for each in ast.parse((CLIENT / path).read_text()).body
        if isinstance(each, ast.ClassDef) and each.name == name
    )
    written = [each for each in own.body if isinstance(each, ast.FunctionDef) and _is_public(each.name)]
    taken = {each.name for each in written}
    made = [
        _sync(each)
        for each in mirrored.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and (isinstance(each, ast.AsyncFunctionDef) or _returned(each) == "Consumption")
        and _is_public(_PLAIN.get(each.name, each.name))
        and _PLAIN.get(each.name, each.name) not in taken
    ]
    overloaded = {each.name for each in made if each.decorator_list}
    made = [each for each in made if each.decorator_list or each.name not in overloaded]
    attributes = ast.parse("name: str").body if own.name in {"SyncQueue", "SyncTopic"} else []
    body: list[ast.stmt] = [ast.Expr(ast.Constant(ast.get_docstring(own)))]
    body += [*attributes, *map(_bare, written), *made]
    return ast.ClassDef(own.name, own.bases, [], body, [])


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in {"__init__", "__enter__", "__exit__"}


def _sync(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    """Return a method as the synchronous class has it."""
    bare = _bare(function)
    assert bare.returns is not None
    name, returns = _PLAIN.get(bare.name, bare.name), _Sync().visit(bare.returns)
    return ast.fix_missing_locations(ast.FunctionDef(name, bare.args, bare.body, bare.decorator_list, returns))


class _Sync(ast.NodeTransformer):
    """Turns types that a method returns into those of the synchronous API."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "Consumption":
            return ast.parse("Iterator[Record]", mode="eval").body
        return ast.Name(_NAMES.get(node.id, node.id))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self.visit(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in _ITERATORS:
            item = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return ast.Subscript(ast.Name("Iterator"), self.visit(item))
        return self.generic_visit(node)


def _bare(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Return a function without its body, but with what it says about itself."""
    said = ast.get_docstring(function)
    function.body = [ast.Expr(ast.Constant(... if said is None else said))]
    return function


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.unparse(function.returns).strip("'\"") if function.returns else ""


def _imports() -> dict[str, str]:
    """How each name comes into the stub: as a module of the client has it, or from where it is defined."""
    found = {"Iterator": "from collections.abc import Iterator", "Self": "from typing import Self"}
    for path in ("client.py", "message.py", "queue.py", "topics/topic.py", "sync.py"):
        module = "penstock.client." + path.removesuffix(".py").replace("/", ".")
        for node in ast.parse((CLIENT / path).read_text()).body:
            if isinstance(node, ast.ImportFrom):
                for each in node.names:
                    found.setdefault(each.name, f"from {node.module} import {each.name}")
            elif isinstance(node, ast.Assign | ast.AnnAssign) and path != "sync.py":
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.setdefault(ast.unparse(target), f"from {module} import {ast.unparse(target)}")
            elif isinstance(node, ast.ClassDef) and path != "sync.py":
                found.setdefault(node.name, f"from {module} import {node.name}")
    return found


def formatted(text: str, path: Path) -> str:
    """Return Python as ruff leaves it."""
    for command in (("check", "--select", "I,UP,F", "--fix", "--quiet"), ("format", "--quiet")):
        ruff = [str(Path(sys.executable).parent / "ruff"), *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text
