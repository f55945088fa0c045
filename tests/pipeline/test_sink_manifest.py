"""The manifest, the options and the sending of a write, without Spark."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs  # type: ignore[import-untyped]
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipeline.sink.chunks import Chunk
from penstock.pipeline.sink.columns import BadColumns, check_columns
from penstock.pipeline.sink.folders import Folder, LocalFolder, RemoteFolder, open_folder
from penstock.pipeline.sink.manifest import (
    REMEMBERED_MS,
    InputChanged,
    Manifest,
    ManifestDamaged,
    Recorder,
    SendInDoubt,
)
from penstock.pipeline.sink.options import BadOption, read_options
from penstock.pipeline.sink.sending import Answered, SendFailed, Sending
from penstock.wire.frames import Ids, SendFrame, encode_sent

NOON_MS = 1_772_366_400_000
SENT = Answered("1-2", "1-a")


def chunk(index: int, content: str = "") -> Chunk:
    return Chunk(index, "orders", 2, f"{content or index:0>32}", SendFrame(bodies=[b"a", b"b"]))


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
    parts = Manifest(kind(tmp_path / "m"), "nightly/orders", None, "one").complete(1)
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

    with pytest.raises(InputChanged, match="input of job 'nightly/orders' changed or is not in a fixed order: sort it"):
        must_send(recorder(LocalFolder(tmp_path), run="two"), chunk(0, "ff"))
    # The same rows, spread over the partitions in another way.
    with pytest.raises(InputChanged, match="another partition had in an earlier run"):
        must_send(recorder(LocalFolder(tmp_path), run="two", partition=1), chunk(5, "0"))
    assert must_send(recorder(LocalFolder(tmp_path), run="one", partition=1), chunk(5, "0"))
    with pytest.raises(InputChanged, match="there were 1 partitions, and now there are 0"):
        Manifest(LocalFolder(tmp_path), "nightly/orders", None, "two").complete(0)


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


def test_a_folder_may_be_named_as_a_file_url(tmp_path: Path) -> None:
    open_folder(f"file://{tmp_path}/with%20space").put("a", "text")

    assert (tmp_path / "with space" / "a").read_text() == "text"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"manifst": "x"}, "no option is called manifst; there are url, key, queue, job, manifest"),
        ({"url": "127.0.0.1:8080"}, "option url is '127.0.0.1:8080'; it names a server"),
        ({"url": "http://h:99999"}, "option url"),
        ({"job": ""}, "option job is missing: a name for this write.*delivery=at-least-once"),
        ({"queue": "a/b"}, "option queue is 'a/b'; a name has"),
        ({"queue": "topic:a"}, "topics are read and not yet written"),
        ({"topic": "a"}, "topics are read and not yet written"),
        ({"maxWait": "soon"}, "option maxWait is 'soon'; it is a number from 0 to 86400"),
        ({"rate": "10"}, "option rate needs option concurrency"),
        ({"messagesPerSend": "1001"}, "option messagesPerSend is '1001'; it is a whole number from 1 to 1000"),
        ({"inDoubt": "maybe"}, "option inDoubt is 'maybe'; it is one of fail, send, skip"),
        ({"delivery": "exactly-twice"}, "option delivery is 'exactly-twice'; it is one of once, at-least-once"),
        ({"delivery": "at-least-once", "manifest": "m"}, "option manifest is for delivery=once"),
        ({"key": "a\nb"}, "option key has a character that a header cannot have"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(said: dict[str, str], told: str) -> None:
    good = {"url": "http://127.0.0.1:8080", "queue": "orders", "job": "nightly"}

    with pytest.raises(BadOption, match=told):
        read_options(good | said, environment={})


def test_the_key_comes_from_the_environment_and_the_rate_is_shared() -> None:
    said = {
        "URL": "http://h/",
        "queue": "orders",
        "job": "a",
        "rate": "100",
        "concurrency": "4",
        "checkpointLocation": "/",
    }

    found = read_options(said, environment={"PENSTOCK_KEY": "secret"})

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


@contextmanager
def answering(*answers: tuple[int, str]) -> Iterator[tuple[str, list[int]]]:
    """Something that answers as it is told, the last answer for ever; status 0 hangs up. Gives URL and answers."""
    said: list[int] = []

    class Answering(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, text = answers[min(len(said), len(answers) - 1)]
            said.append(status)
            if not status:
                self.close_connection = True
                return
            body = encode_sent(Ids(1, [16, 24])) if status == 201 else text.encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as found:
        found.daemon_threads = True
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{found.server_port}", said
        finally:
            found.shutdown()
            thread.join()


FULL = (429, '{"code": "queue_full", "detail": "it is full", "retry_after_s": 7.5}')


def waiting(url: str, wait_s_max: float = 60.0) -> tuple[Sending, list[float]]:
    """A sending whose clock moves by what it sleeps."""
    slept: list[float] = []
    sending = Sending(url, "", wait_s_max=wait_s_max, now_s=lambda: sum(slept), sleep=slept.append)
    return sending, slept


def test_a_full_queue_is_waited_for_as_long_as_it_says() -> None:
    with answering(FULL, (503, ""), (0, ""), (201, "")) as (url, said):
        sending, slept = waiting(url)
        assert sending.send("orders", b"frame") == Answered("1-10", "1-18")
        sending.close()

    assert said == [429, 503, 0, 201]
    assert len(slept) == 3
    assert 7.5 <= slept[0] <= 7.5 * 1.25


def test_waiting_is_bounded_and_nothing_is_in_doubt_after_it() -> None:
    with answering(FULL) as (url, said):
        sending, slept = waiting(url)
        with pytest.raises(SendFailed, match=r"maxWait \(60 s\).*429 queue_full: it is full") as failed:
            sending.send("orders", b"frame")
        sending.close()

    assert 6 <= len(said) <= 9
    assert sum(slept) <= 60
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
        ((409, '{"code": "send_forgotten", "detail": "too old"}'), "name another job", True),
        ((418, "tea"), "418 tea", False),
    ],
)
def test_what_is_refused_fails_at_once_with_the_reason(answer: tuple[int, str], told: str, is_unsure: bool) -> None:
    with answering(answer) as (url, said):
        sending, slept = waiting(url)
        with pytest.raises(SendFailed, match=told) as failed:
            sending.send("orders", b"frame")
        sending.close()

    assert (len(said), slept, failed.value.is_unsure) == (1, [], is_unsure)


def test_a_send_that_was_never_answered_is_in_doubt() -> None:
    with answering((0, "")) as (url, _said):
        sending, _slept = waiting(url, wait_s_max=5)
        with pytest.raises(SendFailed, match="given up after") as failed:
            sending.send("orders", b"frame")

    assert failed.value.is_unsure
