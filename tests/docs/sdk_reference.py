"""The reference page of the SDK: its classes with their methods, the settings, and the errors."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import penstock.client
from penstock.client import Batch, Client, Message, Queue, Record, Topic, settings
from penstock.client.errors import CODES, PenstockError
from penstock.client.worker import Worker
from penstock.connect import connect

OPENING = (
    "`penstock.connect(url)` makes a client. The methods below are those of the asynchronous API. The synchronous API\n"
    "has the same methods without `await`, and plain iterators instead of asynchronous ones: use\n"
    "`with penstock.connect(url) as client:`, or `client.sync()`. Its classes are `SyncClient`, `SyncQueue`,\n"
    "`SyncMessage`, `SyncBatch` and `SyncTopic`. Times are seconds."
)

_CLASSES = (Client, Queue, Message, Batch, Topic, Record, Worker)
_SETTINGS = ("QueueSettings", "TierSettings", "RetrySettings", "TenantSettings", "TopicSettings", "MessageFilter")


def sdk_lines() -> Iterator[str]:
    yield from _function("penstock.connect", connect, level=2)
    for each in _CLASSES:
        yield from (f"## `{each.__name__}`", "", _prose(each), "")
        for name, member in _members(each):
            if isinstance(member, property):
                said = inspect.getdoc(member)
                yield f"- `{name}: {_type(member.fget)}`" + (f" — {_prose(member)}" if said else "")
            else:
                yield from _function(name, member, level=3)
        yield ""
    yield from _settings()
    yield from ("## Errors", "", "| error | meaning | codes |", "|---|---|---|")
    for name in sorted(penstock.client.__all__):
        error = getattr(penstock.client, name)
        if isinstance(error, type) and issubclass(error, PenstockError):
            codes = ", ".join(f"`{code}`" for code, kind in CODES.items() if kind is error)
            yield f"| `{name}` | {_prose(error)} | {codes} |"


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """What programs use of a class: properties first, then methods in the order of the source."""
    found = {}
    for each in reversed(kind.__mro__[:-1]):
        if each.__module__.startswith("penstock"):
            found.update({name: member for name, member in vars(each).items() if not name.startswith("_")})
    public = [(name, member) for name, member in found.items() if name not in _INTERNAL.get(kind, ())]
    yield from (each for each in public if isinstance(each[1], property))
    yield from (each for each in public if inspect.isfunction(each[1]))


# What other modules of the SDK call.
_INTERNAL = {
    Queue: ("lease", "settle"),
    Message: ("held",),
    Topic: ("server", "bury", "open_loop", "link"),
}


def _function(name: str, function: Any, *, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} `{name.rpartition('.')[2]}`", "", "```text", _signature(name, function), "```")
    if inspect.getdoc(function):
        yield from ("", _prose(function))
    yield ""


def _signature(name: str, function: Any) -> str:
    """Return how a function is called, with the values of its defaults."""
    definition = _definition(function)
    given = inspect.signature(function).parameters
    own = [each for each in ast.walk(definition.args) if isinstance(each, ast.arg) and each.arg != "self"]
    types = {each.arg: ast.unparse(each.annotation).strip("'\"") if each.annotation else "" for each in own}
    words: list[str] = []
    is_keyword = False
    for each in given.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            words.append("*")
        word = (
            f"**{each.name}: {types[each.name]}"
            if each.kind is each.VAR_KEYWORD
            else f"{each.name}: {types[each.name]}"
        )
        words.append(word if each.default is each.empty else f"{word} = {each.default!r}")
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    whole = f"{prefix}{name}({', '.join(words)}) -> {_type(function)}"
    if len(whole) <= 100:
        return whole
    return f"{prefix}{name}(\n" + "".join(f"    {word},\n" for word in words) + f") -> {_type(function)}"


def _type(function: Any) -> str:
    returns = _definition(function).returns
    return ast.unparse(returns).strip("'\"") if returns else "None"


def _definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
    return found


def _prose(of: Any) -> str:
    return (inspect.getdoc(of) or "").replace("``", "`")


def _settings() -> Iterator[str]:
    tree = ast.parse(inspect.getsource(settings))
    lines = inspect.getsource(settings).split("\n")
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    for name in _SETTINGS:
        yield from (f"## `{name}`", "", _prose(getattr(settings, name)), "")
        yield from ("| keyword | type | meaning |", "|---|---|---|")
        for field in (each for each in classes[name].body if isinstance(each, ast.AnnAssign)):
            words: list[str] = []
            at = field.lineno - 2
            while lines[at].lstrip().startswith("#"):
                words.insert(0, lines[at].lstrip(" #"))
                at -= 1
            kind = ast.unparse(field.annotation).replace("|", "or")
            yield f"| `{ast.unparse(field.target)}` | `{kind}` | {' '.join(words)} |"
        yield ""
