"""One table says which columns the history has: each way to read it gives them, with the same rows."""

from dataclasses import fields
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.api.rest.arrows import history_stream
from penstock.api.rest.history import COLUMNS
from penstock.contract.history_columns import FIELDS, FRAME_ROW_BITS, HISTORY, OFFSETS, REST_HISTORY, BodyState, ddl
from penstock.contract.messages import OUTCOMES, PRIORITIES
from penstock.history_arrow import schema_of
from penstock.pipeline.options import read_options
from penstock.pipeline.source.database import DatabaseRows, fields_of
from penstock.pipeline.source.folder import Piece, batches_of
from penstock.pipeline.source.ranges import Wanted
from penstock.pipeline.source.reader import schema_for
from penstock.pipeline.source.server import asked_of, chosen, converted
from penstock.store.embedded import history_reader
from penstock.store.embedded.history_format import HistoryFrame, decode, encode
from penstock.store.pages import HistoryPage
from tests.pipeline.told import MIXED, NAMES, PLAIN, kept

SHARD = 3
ALL = Wanted(HISTORY, frozenset(), None, None)
# With bodies, with nothing that may be left out, and with everything else.
BODIES = kept([b"one", b"", b"three"], [b'{"a":1}', b"", b""], [BodyState.KEPT, BodyState.TOO_LARGE, BodyState.KEPT])
FRAMES = [
    decode(*encode([PLAIN], NAMES, covered=0, within=0, bodies=BODIES)),
    decode(*encode([PLAIN._replace(number=50, key=50 << 3 | 2)], NAMES, covered=0, within=0)),
    decode(*encode(MIXED, NAMES, covered=0, within=0)),
]


def page_of(frames: list[HistoryFrame]) -> HistoryPage:
    pieces = [
        history_reader.Piece(frame, range(frame.head.rows), at << FRAME_ROW_BITS) for at, frame in enumerate(frames)
    ]
    return HistoryPage(0, 0, 0, 0, **history_reader.columns_of(pieces))


def of_server(page: HistoryPage) -> Any:
    """Return what Spark gets of the answer of a server."""
    answer = history_stream(page, asked_of([column.name for column in HISTORY], wanted=ALL))
    with pa.ipc.open_stream(pa.py_buffer(answer)) as stream:
        (batch,) = stream
    return converted(chosen(batch, ALL), HISTORY, {"shard": SHARD})


def of_folder(frames: list[HistoryFrame]) -> Any:
    pieces = [Piece(at, frame, 0, frame.head.rows) for at, frame in enumerate(frames)]
    (batch,) = batches_of(pieces, SHARD, ALL)
    return batch


def of_database(page: HistoryPage) -> Any:
    """Return what Spark gets of rows as PostgreSQL has them."""
    columns = {
        "at_offset": pa.array(page.offsets.tolist(), pa.int64()),
        "queue": pa.array(page.queue.tolist(), pa.int32()),
        "key": pa.array([page.key_of(row) for row in range(len(page))], pa.int64()),
        "home": pa.array(page.home.tolist(), pa.int32()),
        "home_key": pa.array([n << 3 | t for n, t in zip(page.number, page.sent_tier, strict=True)], pa.int64()),
        "tier": pa.array(page.tier.tolist(), pa.int16()),
        "ending": pa.array(page.ending.tolist(), pa.int16()),
        "deliveries": pa.array(page.deliveries.tolist(), pa.int32()),
        "grp": pa.array(_words(page.group, len(page)), pa.binary()),
        "error": pa.array([word and word.decode() for word in _words(page.error, len(page))], pa.string()),
        "body": pa.array(_kept(page, page.body), pa.binary()),
        "attributes": pa.array(_kept(page, page.attributes), pa.binary()),
    }
    for name in ("sent_at_ms", "first_leased_ms", "last_leased_ms", "settled_at_ms"):
        columns[name] = pa.array(getattr(page, name).tolist(), pa.int64())
    asked = list(fields_of(HISTORY))
    rows = DatabaseRows(pa.record_batch([columns[name] for name in asked], asked), page.names)
    return rows.batch(HISTORY, SHARD)


def _words(column: Any, rows: int) -> list[bytes | None]:
    return [bytes(column[row]) or None for row in range(rows)] if column is not None else [None] * rows


def _kept(page: HistoryPage, column: Any) -> list[bytes | None]:
    if column is None or page.body_state is None:
        return [None] * len(page)
    return [
        bytes(column[row]) if state == BodyState.KEPT else None for row, state in enumerate(page.body_state.tolist())
    ]


def test_a_server_a_folder_and_a_database_give_equal_tables_of_one_history() -> None:
    for frames in (FRAMES, FRAMES[:1], FRAMES[1:2], FRAMES[2:]):
        page = page_of(frames)
        found = of_server(page)
        found.validate(full=True)
        assert found.num_rows == len(page) > 0
        assert of_folder(frames).equals(found)
        assert of_database(page).equals(found)
    words = found.to_pydict()
    assert set(words["priority"]) == {PRIORITIES[tier] for tier in words["tier"]}
    assert set(words["outcome"]) < set(OUTCOMES)
    assert {None, "anna", "\ufffd!"} == set(words["group"])
    assert {None, "no «stock»"} == set(words["error"])


def test_every_column_of_the_table_reaches_rest_and_spark() -> None:
    page = page_of(FRAMES)
    stream = history_stream(page, [column.name for column in REST_HISTORY])
    assert tuple(pa.ipc.open_stream(stream).schema.names) == COLUMNS
    assert set(COLUMNS) - {"sent_priority"} == {column.name for column in HISTORY} - {"shard"}
    for batch in (of_server(page), of_folder(FRAMES), of_database(page)):
        assert batch.schema.equals(schema_of(HISTORY))
    assert schema_for({"path": "/data"}) == ddl(HISTORY)
    assert read_options({"path": "/data"}).columns == HISTORY


def test_frames_and_pages_have_the_fields_of_the_table() -> None:
    named = {field.name for field in FIELDS}
    of_frames = {field.name for field in fields(HistoryFrame)}
    of_pages = {field.name for field in fields(HistoryPage)}
    assert named <= of_frames
    assert of_frames - named == {"head", "queue_numbers", "queue_names", "body_state"}
    assert named | {OFFSETS.name} <= of_pages
    assert {column.field for column in REST_HISTORY} <= named | {OFFSETS.name}
