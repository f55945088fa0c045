"""Joins rows of several frames of the history into the columns of one page.

Laws of this file
-----------------
1. Rows of one frame that follow each other are views into it: nothing is copied.
2. Of several frames, numbers are joined as bytes. Nobody loops over rows, except
   where only some rows of a frame are sought, or words get one table for all.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.contract.history_columns import NUMBERS, BodyState
from penstock.frame import Blobs
from penstock.store.embedded.history_frames import HistoryFrame
from penstock.store.pages import Coded


class Piece(NamedTuple):
    """Some rows of a frame, rising; a range if they follow each other. The offset is that of its row 0."""

    frame: HistoryFrame
    rows: Sequence[int]
    offset: int


def columns_of(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return the columns of a `HistoryPage`, by name."""
    columns: dict[str, Any] = {
        name: _numbers(code, [(getattr(piece.frame, name), piece.rows) for piece in pieces])
        for name, code in NUMBERS.items()
    }
    columns["names"] = _names(pieces)
    columns["offsets"] = _offsets(pieces)
    if any(piece.frame.key is not None for piece in pieces):
        columns["key"] = _numbers("Q", [(_keys(piece.frame), piece.rows) for piece in pieces])
    columns["group"] = _coded([(piece.frame.group, piece.rows) for piece in pieces])
    columns["error"] = _coded([(piece.frame.error, piece.rows) for piece in pieces])
    if any(piece.frame.body_state is not None for piece in pieces):
        columns["body_state"] = _numbers("B", [_states(piece) for piece in pieces])
        columns["body"] = _blobs([(piece.frame.body, piece.rows) for piece in pieces])
    if any(piece.frame.attributes is not None for piece in pieces):
        columns["attributes"] = _blobs([(piece.frame.attributes, piece.rows) for piece in pieces])
    return columns


def _names(pieces: Sequence[Piece]) -> dict[int, str]:
    names: dict[int, str] = {}
    for piece in pieces:
        names |= piece.frame.names()
    return names


def _offsets(pieces: Sequence[Piece]) -> memoryview:
    offsets = array("q")
    for _, rows, offset in pieces:
        if isinstance(rows, range):
            offsets.extend(range(offset + rows.start, offset + rows.stop))
        else:
            offsets.extend([offset + row for row in rows])
    return memoryview(offsets)


def _keys(frame: HistoryFrame) -> memoryview:
    if frame.key is not None:
        return frame.key
    return memoryview(
        array("Q", [number << 3 | tier for number, tier in zip(frame.number, frame.sent_tier, strict=True)])
    )


def _states(piece: Piece) -> tuple[memoryview, Sequence[int]]:
    states = piece.frame.body_state
    if states is None:
        return memoryview(bytes([BodyState.NOT_KEPT]) * len(piece.rows)), range(len(piece.rows))
    return states, piece.rows


def _numbers(code: str, parts: Sequence[tuple[memoryview, Sequence[int]]]) -> memoryview:
    found = [_some(code, column, rows) for column, rows in parts]
    if len(found) == 1:
        return found[0]
    return memoryview(b"".join(found)).cast(code)  # type: ignore[call-overload, no-any-return]


def _some(code: str, column: memoryview, rows: Sequence[int]) -> memoryview:
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    values = column.tolist()
    return memoryview(array(code, [values[row] for row in rows]))


def _coded(parts: Sequence[tuple[Coded | None, Sequence[int]]]) -> Coded | None:
    """Return coded columns as one, with one table."""
    if all(column is None for column, _ in parts):
        return None
    known: dict[bytes, int] = {b"": 0}
    codes = array("i")
    for column, rows in parts:
        if column is None:
            codes.frombytes(bytes(codes.itemsize * len(rows)))
        else:
            ours = [known.setdefault(bytes(word), len(known)) for word in column.words]
            codes.extend([ours[code] for code in _some("i", column.codes, rows).tolist()])
    return Coded(memoryview(codes), Blobs.of(list(known)))


def _blobs(parts: Sequence[tuple[Blobs | None, Sequence[int]]]) -> Blobs:
    if len(parts) == 1 and isinstance(parts[0][1], range) and parts[0][0] is not None:
        return parts[0][0].part(parts[0][1].start, parts[0][1].stop)
    found: list[memoryview | bytes] = []
    for column, rows in parts:
        found += [b""] * len(rows) if column is None else _picked(column, rows)
    return Blobs.of(found)


def _picked(column: Blobs, rows: Iterable[int]) -> list[memoryview]:
    return [column[row] for row in rows]
