"""The manifest, the options and the sending of a write, without Spark."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyarrow import fs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.pipeline.options import WRITE_OPTIONS, BadOption, write_options
from penstock.pipeline.sink.chunks import Chunk
from penstock.pipeline.sink.columns import COLUMNS, BadColumns, check_columns
from penstock.pipeline.sink.manifest import (
    REMEMBERED_MS,
    InputChanged,
    Manifest,
    ManifestDamaged,
    ManifestElsewhere,
    NotYet,
    Recorder,
    SendInDoubt,
    job_place,
)
from penstock.pipeline.sink.partition import LOOK_BYTES, HeldRows
from penstock.pipeline.sink.send import Answered, SendFailed
from penstock.pipeline.sink.topic_columns import COLUMNS as TOPIC_COLUMNS
from penstock.pipeline.sink.topic_columns import check_columns as check_topic_columns
from penstock.pipeline.sink.writer import MessageWriter
from penstock.pipeline.storage import Folder, LocalFolder, RemoteFolder, open_folder
from penstock.wire.frames import SendFrame, encode_send
from tests.pipeline.answering import FULL, HANGS_UP, TAKEN, answering, waiting

NOON_MS = 1_772_366_400_000
SENT = Answered("1-2", "1-a")


def chunk(index: int, content: str = "") -> Chunk:
    return Chunk(index, "orders", 2, f"{content or index:0>32}", encode_send(SendFrame(bodies=[b"a", b"b"])))


def local(root: Path) -> Folder:
    return LocalFolder(root)


def remote(root: Path) -> Folder:
    root.mkdir(exist_ok=True)
    return RemoteFolder(fs.LocalFileSystem(), str(root))


def recorder(folder: Folder, *, run: str = "one", partition: int = 0, attempt: str = "first") -> Recorder:
    return Manifest(folder, "nightly/orders", None, run).recorder(partition, attempt)


def must_send(recorder: Recorder, chunk: Chunk, *, now_ms: int = NOON_MS, in_doubt: str = "fail") -> bool:
    return recorder.must_send(chunk, now_ms=now_ms, in_doubt=in_doubt)


@pytest.mark.parametrize("kind", [local, remote])
def test_a_chunk_on_record_is_not_sent_by_the_next_attempt(kind: Callable[[Path], Folder], tmp_path: Path) -> None:
    first = recorder(kind(tmp_path / "m"))
    for index in range(3):
        assert must_send(first, chunk(index))
        first.note_intent(chunk(index), now_ms=NOON_MS)
        first.note_sent(chunk(index), SENT)
    first.flush()

    second = recorder(kind(tmp_path / "m"), attempt="second")
    assert [must_send(second, chunk(index)) for index in range(4)] == [False, False, False, True]
    second.note_end(chunks=3, rows=6)
    parts = Manifest(kind(tmp_path / "m"), "nightly/orders", None, "one").complete({0: 3})
    assert (parts[0].sent_messages, parts[0].sent_chunks, parts[0].unsure_messages) == (6, 3, 0)

    much_later = recorder(kind(tmp_path / "m"), run="two")
    assert [must_send(much_later, chunk(index), now_ms=NOON_MS * 2) for index in range(3)] == [False] * 3
    with pytest.raises(InputChanged, match="had 3 chunks, and now it has more"):
        must_send(much_later, chunk(3))
    with pytest.raises(InputChanged, match="had 3 chunks, and now it has 2"):
        much_later.note_end(chunks=2, rows=4)


def test_a_chunk_that_was_never_answered_is_sent_again_while_the_server_remembers_it(tmp_path: Path) -> None:
    recorder(LocalFolder(tmp_path)).note_intent(chunk(0), now_ms=NOON_MS)
    again = recorder(LocalFolder(tmp_path), run="two")

    assert must_send(again, chunk(0), now_ms=NOON_MS + REMEMBERED_MS - 1)
    with pytest.raises(SendInDoubt, match="inDoubt=send or inDoubt=skip"):
        must_send(again, chunk(0), now_ms=NOON_MS + REMEMBERED_MS)
    assert must_send(again, chunk(0), now_ms=NOON_MS + REMEMBERED_MS, in_doubt="send")
    assert not must_send(again, chunk(0), now_ms=NOON_MS + REMEMBERED_MS, in_doubt="skip")
    again.flush()
    assert not must_send(recorder(LocalFolder(tmp_path), run="three"), chunk(0), now_ms=NOON_MS + REMEMBERED_MS)


def test_rows_that_changed_under_a_job_are_not_sent(tmp_path: Path) -> None:
    first = recorder(LocalFolder(tmp_path))
    first.note_intent(chunk(0), now_ms=NOON_MS)
    first.note_sent(chunk(0), SENT)
    first.flush()

    with pytest.raises(InputChanged, match="input of job 'nightly/orders' changed or is not in a fixed order: spread"):
        must_send(recorder(LocalFolder(tmp_path), run="two"), chunk(0, "ff"))
    with pytest.raises(InputChanged, match="there were 1 partitions, and now there are 0"):
        Manifest(LocalFolder(tmp_path), "nightly/orders", None, "two").check_partitions(0)


def begin(folder: Folder, partitions: int, chunks: int) -> None:
    """Leave a run behind that has sent so many chunks of each partition."""
    for partition in range(partitions):
        first = recorder(folder, partition=partition)
        for index in range(chunks):
            first.note_intent(chunk(index, "aa"), now_ms=NOON_MS)
            first.note_sent(chunk(index, "aa"), SENT)
        first.flush()


@pytest.mark.parametrize("kind", [local, remote])
def test_a_run_that_resumes_another_sends_nothing_before_each_partition_on_record_was_seen(
    kind: Callable[[Path], Folder], tmp_path: Path
) -> None:
    begin(kind(tmp_path / "m"), partitions=2, chunks=2)
    new, first, second = (recorder(kind(tmp_path / "m"), run="two", partition=partition) for partition in (2, 0, 1))

    with pytest.raises(NotYet):
        must_send(new, chunk(0, "aa"))
    # Rows that are all alike are no reason to stop: it is known where each of them belongs.
    assert [must_send(first, chunk(index, "aa")) for index in range(2)] == [False, False]
    with pytest.raises(NotYet):
        must_send(first, chunk(2, "aa"))
    assert not must_send(second, chunk(0, "aa"))
    with pytest.raises(NotYet):
        must_send(new, chunk(0, "aa"))
    assert not must_send(second, chunk(1, "aa"))

    assert all(must_send(each, chunk(2, "aa")) for each in (second, first, new))
    with pytest.raises(NotYet):
        must_send(recorder(kind(tmp_path / "m"), run="three", partition=2), chunk(0, "aa"))


def test_a_partition_that_had_ended_is_seen_when_it_ends_there_again(tmp_path: Path) -> None:
    ended = recorder(LocalFolder(tmp_path), partition=1)
    ended.note_intent(chunk(0), now_ms=NOON_MS)
    ended.note_sent(chunk(0), SENT)
    ended.note_end(chunks=1, rows=2)
    again, new = (recorder(LocalFolder(tmp_path), run="two", partition=partition) for partition in (1, 0))

    assert not must_send(again, chunk(0))
    with pytest.raises(NotYet):
        must_send(new, chunk(0))
    again.note_end(chunks=1, rows=2)
    assert must_send(new, chunk(0))


@pytest.mark.parametrize("kind", [local, remote])
def test_rows_are_held_no_longer_than_they_must_be(kind: Callable[[Path], Folder], tmp_path: Path) -> None:
    folder = kind(tmp_path / "m")
    begin(folder, partitions=1, chunks=1)
    batch = pa.RecordBatch.from_pydict({"data": [bytes(LOOK_BYTES // 2)]})
    asked: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(8):
            if number == 5:
                must_send(recorder(folder, run="two"), chunk(0, "aa"))
            asked.append(number)
            yield batch

    task = recorder(folder, run="two", partition=1)
    held = HeldRows(rows(), folder, task.resumption.rows_name("first"), task.resumption)
    assert next(held) == batch
    assert not held.keep_rest()
    # It looked after each second one.
    assert len(asked) == 7
    assert sum(each == batch for each in held.again()) == 8
    # A task that begins now holds nothing.
    after = HeldRows([batch], folder, "after", recorder(folder, run="two", partition=2).resumption)
    assert list(after) == [batch]
    assert after.name == ""


def test_a_driver_that_does_not_find_what_its_tasks_have_noted_says_so(tmp_path: Path) -> None:
    task = recorder(LocalFolder(tmp_path / "of an executor"))
    task.note_intent(chunk(0), now_ms=NOON_MS)
    task.note_sent(chunk(0), SENT)
    task.note_end(chunks=1, rows=2)

    driver = Manifest(LocalFolder(tmp_path / "of the driver"), "nightly/orders", None, "one")
    with pytest.raises(ManifestElsewhere, match="driver and executors must reach the same folder"):
        driver.complete({0: 1})
    assert not list(tmp_path.rglob("done.json"))


def test_a_chunk_that_the_server_refused_may_change(tmp_path: Path) -> None:
    first = recorder(LocalFolder(tmp_path))
    first.note_intent(chunk(0), now_ms=NOON_MS)
    first.note_refused(chunk(0))

    assert must_send(first, chunk(0, "ff"))
    assert must_send(recorder(LocalFolder(tmp_path), run="two"), chunk(0, "ff"))


def test_a_line_cut_short_by_a_kill_is_no_fact(tmp_path: Path) -> None:
    first = recorder(LocalFolder(tmp_path))
    first.note_intent(chunk(0), now_ms=NOON_MS)
    first.note_intent(chunk(1), now_ms=NOON_MS)
    (file,) = tmp_path.rglob("*.jsonl")
    whole = file.read_bytes()

    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        known = recorder(LocalFolder(tmp_path), run="two").part.chunks
        assert len(known) == whole[:size].count(b"\n")
    file.write_bytes(whole.replace(b"intent", b"int\xffnt", 1).replace(b"{", b"", 1))
    with pytest.raises(ManifestDamaged, match="line 1 is no fact"):
        recorder(LocalFolder(tmp_path), run="two")


def test_a_failed_write_leaves_on_record_what_it_had_sent(tmp_path: Path) -> None:
    first = recorder(LocalFolder(tmp_path))
    first.note_intent(chunk(0), now_ms=NOON_MS)
    first.note_sent(chunk(0), SENT)
    first.note_intent(chunk(1), now_ms=NOON_MS)
    Manifest(LocalFolder(tmp_path), "nightly/orders", None, "one").abort()

    (file,) = tmp_path.rglob("aborted-one.json")
    assert '"sent_messages": 2, "unsure_messages": 2' in file.read_text()


@pytest.mark.parametrize("job", ["..", ".", "a/../../b", "ü" * 100, "nightly\n"])
def test_a_job_may_be_called_anything_and_keeps_to_a_folder_of_its_own(job: str, tmp_path: Path) -> None:
    place = job_place(job)
    assert place not in {job_place("a"), job_place(job + "a"), job_place("ü" * 99 + "u"), "", ".", ".."}

    open_folder(str(tmp_path / "manifest")).append(f"{place}/write/parts/00000/a.jsonl", "text")

    (found,) = (tmp_path / "manifest").iterdir()
    assert found.name == place
    assert [each.name for each in tmp_path.iterdir()] == ["manifest"]


@pytest.mark.parametrize("kind", [local, remote])
def test_the_batches_of_a_stream_are_listed_without_a_look_into_them(
    kind: Callable[[Path], Folder], tmp_path: Path
) -> None:
    folder = kind(tmp_path / "m")
    for name in ("topic.json", "batch-0000000002/parts/00000/a.jsonl", "batch-0000000001/done.json"):
        folder.put(f"orders/{name}", "{}")

    assert sorted(folder.folders("orders")) == ["batch-0000000001", "batch-0000000002"]
    assert folder.folders("nowhere") == []


def test_a_folder_may_be_named_as_a_file_url(tmp_path: Path) -> None:
    open_folder(f"file://{tmp_path}/with%20space").put("a", "text")

    assert (tmp_path / "with space" / "a").read_text() == "text"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"manifst": "x"}, r"there is no option 'manifst'\. Do you mean manifest\? There are: url, key, queue, topic"),
        ({"zzz": "x"}, "there is no option 'zzz'. There are: url, key"),
        ({"url": "http://u:sesame@h"}, "option url is 'http://u:…@h'; it must be the address of a server"),
        ({"url": "127.0.0.1:8080"}, "option url is '127.0.0.1:8080'; it must be the address of a server"),
        ({"url": "http://h:99999"}, "option url"),
        ({"job": ""}, "option job is missing: a name for this write.*delivery=at-least-once"),
        ({"queue": "a/b"}, "option queue is 'a/b'; it must be the name of a queue .* a name has"),
        ({"queue": "topic:a"}, "option queue is 'topic:a'; .*for a topic, give option topic"),
        ({"topic": "a"}, "option queue and option topic are both there"),
        ({"queue": "", "topic": "a/b"}, "option topic is 'a/b'; it must be the name of a topic: 1 to 249 of"),
        ({"queue": "", "topic": "a"}, "option manifest is missing: of a topic, a server remembers little"),
        ({"queue": "", "topic": "a", "compression": "lz4"}, "option manifest is missing"),
        ({"queue": "", "topic": "a", "manifest": "m", "compression": "lz4"}, "it must be none, gzip or zstd"),
        ({"compression": "zstd"}, "option compression is 'zstd'; it must be none, gzip or zstd, and none for a queue"),
        ({"maxWait": "soon"}, "option maxWait is 'soon'; it must be a number from 0 to 86400"),
        ({"rate": "10"}, "option rate needs option concurrency"),
        ({"messagesPerSend": "1001"}, "option messagesPerSend is '1001'; it must be a whole number from 1 to 1000"),
        ({"inDoubt": "maybe"}, "option inDoubt is 'maybe'; it must be fail, send or skip"),
        ({"delivery": "exactly-twice"}, "option delivery is 'exactly-twice'; it must be once or at-least-once"),
        ({"delivery": "at-least-once", "manifest": "m"}, "option manifest is for delivery=once"),
        ({"key": "a\nb"}, "option key has a character that a header cannot have"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(said: dict[str, str], told: str) -> None:
    good = {"url": "http://127.0.0.1:8080", "queue": "orders", "job": "nightly"}

    with pytest.raises(BadOption, match=told):
        write_options(good | said, environment={})
    with pytest.raises(BadOption, match="a table of a catalog cannot be written to"):
        write_options({}, environment={})


def test_a_manifest_is_checked_before_a_task_is_started_and_is_the_same_folder_for_all(tmp_path: Path) -> None:
    schema = StructType([StructField("data", StringType())])
    (tmp_path / "file").touch()
    good = {"url": "http://127.0.0.1:8080", "queue": "orders", "job": "nightly"}

    for where in (f"{tmp_path}/file", "nowhere://bucket/manifest"):
        with pytest.raises(BadOption, match=f"option manifest is '{where}', and nothing can be kept there: "):
            MessageWriter(good | {"manifest": where}, schema, is_overwrite=False)
    assert write_options(good | {"manifest": "manifests"}).manifest == str(Path.cwd() / "manifests")


def test_each_option_and_column_of_a_write_is_on_the_page_that_says_how() -> None:
    pages = Path(__file__).parents[3] / "docs" / "how-to"
    queue, topic = (pages.joinpath(f"write-to-a-{noun}-from-spark.md").read_text() for noun in ("queue", "topic"))

    options = {option.name for option in WRITE_OPTIONS}
    assert [name for name in options - {"topic", "compression"} if f"`{name}`" not in queue] == []
    assert [name for name in options - {"queue"} if f"`{name}`" not in topic] == []
    assert [name for name in COLUMNS if f"| `{name}` |" not in queue] == []
    assert [name for name in TOPIC_COLUMNS if f"| `{name}` |" not in topic] == []


def test_the_key_comes_from_the_environment_and_the_rate_is_shared() -> None:
    said = {
        "URL": "http://h/",
        "queue": "orders",
        "job": "a",
        "rate": "100",
        "concurrency": "4",
        "checkpointLocation": "/",
    }

    found = write_options(said, environment={"PENSTOCK_KEY": "secret"})

    assert (found.url, found.key, found.task_rate) == ("http://h", "secret", 25.0)


def test_columns_that_are_no_columns_of_a_write_are_named() -> None:
    def check(names: str, *, has_queue: bool = True) -> None:
        check_columns(StructType([StructField(name, StringType()) for name in names.split()]), has_queue=has_queue)

    check("data group")
    with pytest.raises(BadColumns, match="called level, body; there are data, priority, delay"):
        check("level body data")
    with pytest.raises(BadColumns, match="the column data is missing"):
        check("priority")
    with pytest.raises(BadColumns, match="give option queue, or a column queue"):
        check("data", has_queue=False)
    with pytest.raises(BadColumns, match="both there"):
        check("data queue")


def test_a_column_of_a_wrong_type_fails_a_write_before_a_task_is_started() -> None:
    def check(**kinds: DataType) -> None:
        given = {"data": StringType(), **kinds}
        schema = StructType([StructField(name, kind) for name, kind in given.items()])
        check_columns(schema, has_queue=True)

    texts = MapType(StringType(), StringType())
    check(priority=ByteType(), delay=DecimalType(4, 1), visible_at=TimestampType(), attributes=texts)
    check(**{name: NullType() for name in COLUMNS if name != "queue"})
    with pytest.raises(BadColumns, match="column data is int64; it is BINARY or STRING: cast it, or make it JSON"):
        check(data=LongType())
    with pytest.raises(BadColumns, match="column visible_at is a time without a zone"):
        check(visible_at=TimestampNTZType())
    with pytest.raises(BadColumns, match=r"column delay is duration\[us\]; it is a number of seconds"):
        check(delay=DayTimeIntervalType())
    with pytest.raises(BadColumns, match="an attribute of type date32"):
        check(attributes=MapType(StringType(), DateType()))
    with pytest.raises(BadColumns, match="column partition is string; it is a whole number"):
        check_topic_columns(StructType([StructField("value", StringType()), StructField("partition", StringType())]))
    headers = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
    check_topic_columns(StructType([StructField("value", NullType()), StructField("headers", headers)]))


def test_a_full_queue_is_waited_for_as_long_as_it_says_but_not_for_a_minute() -> None:
    nobody_receives = (429, b'{"code": "queue_full", "detail": "it is full", "retry_after_s": 60}')
    with answering(FULL, (503, b""), HANGS_UP, nobody_receives, TAKEN) as asked:
        sending, slept = waiting(asked.url)
        assert sending.send("orders", b"frame") == Answered("1-10", "1-18")
        sending.close()

    assert asked.answers == [429, 503, 0, 429, 201]
    assert len(slept) == 4
    assert 7.5 <= slept[0] <= 7.5 * 1.25
    assert 10.0 <= slept[3] <= 10.0 * 1.25


def test_waiting_is_bounded_and_told_once_and_nothing_is_in_doubt_after_it(caplog: pytest.LogCaptureFixture) -> None:
    with answering(FULL) as asked:
        sending, slept = waiting(asked.url)
        with pytest.raises(SendFailed, match=r"maxWait \(60 s\).*429 queue_full: it is full") as failed:
            sending.send("orders", b"frame")
        sending.close()

    assert 7 <= len(asked.answers) <= 10
    # The last try is made when the time is up, though the queue has said to come back later.
    assert 59.9 <= sum(slept) <= 60.1
    assert "queue orders at http" in caplog.text
    assert caplog.text.count("is tried again, for up to maxWait (60 s): 429 queue_full: it is full") == 1
    assert not failed.value.is_unsure


@pytest.mark.parametrize(
    ("answer", "told", "is_unsure"),
    [
        (
            (400, '{"code": "bad_field", "detail": "no", "field": "messages[3].group", "limit": 128}'),
            "3.*limit 128",
            False,
        ),
        ((404, '{"code": "queue_not_found", "detail": "no queue orders"}'), "404 queue_not_found: no queue", False),
        ((409, '{"code": "send_expired", "detail": "too old"}'), "name another job", True),
        ((418, "tea"), "418 tea", False),
        ((401, '{"code": "unauthorized", "detail": "say a key"}'), "401 unauthorized: say a key", False),
        # It is unknown how far it came.
        ((500, '{"code": "internal_error", "detail": "a bug"}'), "500 internal_error: a bug", True),
    ],
)
def test_what_is_refused_fails_at_once_with_the_reason(answer: tuple[int, str], told: str, is_unsure: bool) -> None:
    status, text = answer
    with answering((status, text.encode())) as asked:
        sending, slept = waiting(asked.url)
        with pytest.raises(SendFailed, match=told) as failed:
            sending.send("orders", b"frame")
        sending.close()

    assert (len(asked.answers), slept, failed.value.is_unsure) == (1, [], is_unsure)


def test_a_send_that_was_never_answered_is_in_doubt() -> None:
    with answering(HANGS_UP) as asked:
        sending, _slept = waiting(asked.url, wait_s_max=5)
        with pytest.raises(SendFailed, match="given up after") as failed:
            sending.send("orders", b"frame")

    assert failed.value.is_unsure


def test_what_was_never_connected_is_not_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(error: OSError) -> tuple[str, int]:
        def refuse(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("socket.create_connection", refuse)
        sending, slept = waiting("http://queues.example.com", wait_s_max=5)
        with pytest.raises(SendFailed) as failed:
            sending.send("orders", b"frame")
        assert not failed.value.is_unsure
        return str(failed.value), len(slept)

    told, waits = sent(OSError(113, "No route to host"))
    assert "given up after" in told
    assert "No route to host" in told
    assert waits > 1
    # A name that is misspelt stays so.
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert sent(unknown) == ("http://queues.example.com: no machine is known by this name here", 0)
