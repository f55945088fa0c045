"""What a user is told of mistakes that only Spark, Hadoop or the disk has noticed: a sentence, and no stack."""

import errno
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.progress import Progress

from penstock.cli.output import ExitCode
from penstock.cli.pipeline import options
from penstock.cli.pipeline.options import JvmOutput, exit_code_of, hush_spark
from penstock.pipeline.archive.job import ArchiveOptions
from penstock.pipeline.archive.job import run as archive
from penstock.pipeline.audit.job import AuditOptions
from penstock.pipeline.audit.job import run as audit
from penstock.pipeline.job import JobFailed, Silent, explained, first_line
from penstock.pipeline.locations import HistoryLocation, read_history
from penstock.pipeline.reports.folder import settle_folder
from penstock.pipeline.staging import Target, ask_queue
from tests.ports import HeldPort


def test_a_folder_without_history_is_named_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever Spark makes of it.
        spark.read.format("penstock").option("path", str(tmp_path)).load().count()
    assert explained(refused.value) == (
        f"there is no history in {tmp_path}: the option path names the data folder of a server"
    )
    with pytest.raises(JobFailed, match="is neither an archive nor the data folder of a server"):
        read_history(spark, HistoryLocation(where=str(tmp_path)))


def test_an_unknown_file_system_is_named_in_one_sentence(spark: SparkSession) -> None:
    with pytest.raises(JobFailed, match="gopher://hole/archive is neither an archive nor the data folder of a server"):
        read_history(spark, HistoryLocation(where="gopher://hole/archive"))


def test_a_condition_that_cannot_be_computed_is_told_with_its_reason(spark: SparkSession) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever Spark makes of it.
        spark.range(1).where("CAST('late' AS INT) = id").count()

    assert str(explained(refused.value)).startswith("[CAST_INVALID_INPUT] The value 'late'")


def test_a_file_that_is_not_what_its_name_says_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders.parquet").write_text("no Parquet at all")

    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever Spark makes of it.
        spark.read.parquet(str(tmp_path / "orders.parquet"))

    assert re.search(r"^\[.*\] .*orders.parquet", str(explained(refused.value)))


def test_a_list_of_ids_that_is_not_there_is_told_before_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever Spark makes of it.
        audit(
            spark,
            AuditOptions(server=HistoryLocation(where="http://127.0.0.1:9"), sent=f"{tmp_path}/ids.txt"),
            Silent(),
        )

    assert re.search(r"^\[PATH_NOT_FOUND\] .*ids.txt", str(explained(refused.value)))


def test_a_column_that_is_not_there_is_told_once(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    hush_spark()

    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        spark.range(1).where("nosuch = 1").count()

    assert capfd.readouterr().err == ""


def test_bad_sql_is_told_though_its_first_line_is_empty(spark: SparkSession) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 - whatever Spark makes of it.
        spark.range(1).where("1 = 1; DROP TABLE orders")

    assert first_line(str(refused.value)).startswith("[PARSE_SYNTAX_ERROR] Syntax error at or near ';'")


def test_a_server_that_is_not_there_is_told_before_spark_asks_it(spark: SparkSession) -> None:
    held = HeldPort()

    try:
        with pytest.raises(JobFailed, match=r"cannot be read: .* has not answered .* in 3 tries") as refused:
            read_history(spark, HistoryLocation(where=f"http://127.0.0.1:{held.number}"))
    finally:
        held.give_back()

    assert exit_code_of(refused.value) is ExitCode.UNREACHABLE


def test_a_server_to_send_to_that_is_not_there_is_told_with_how_to_name_another() -> None:
    held = HeldPort()

    try:
        with pytest.raises(JobFailed, match=r"has not answered .* name it with --url or in PENSTOCK_URL") as refused:
            ask_queue(Target(url=f"http://127.0.0.1:{held.number}"), "orders")
    finally:
        held.give_back()

    assert exit_code_of(refused.value) is ExitCode.UNREACHABLE


def test_an_archive_is_not_begun_in_a_file_or_a_store(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "store" / "journal").mkdir(parents=True)
    source = HistoryLocation(where=str(tmp_path / "store"))

    with pytest.raises(JobFailed, match=r"notes.txt cannot be an archive: File exists. Name a folder"):
        archive(spark, ArchiveOptions(source=source, root=str(tmp_path / "notes.txt")), Silent())
    with pytest.raises(JobFailed, match="store is the data folder of a server; name another folder"):
        archive(spark, ArchiveOptions(source=source, root=str(tmp_path / "store")), Silent())


def test_a_server_that_a_task_did_not_find_is_one_that_is_away() -> None:
    told = "Traceback …\npenstock.pipeline.http.ServerUnreachable: http://127.0.0.1:9 has not answered\n"

    assert exit_code_of(RuntimeError(told)) is ExitCode.UNREACHABLE
    assert exit_code_of(RuntimeError("penstock.pipeline.http.ServerRefused: no")) is ExitCode.BAD_DATA


def test_a_java_that_does_not_start_is_told_in_its_own_words() -> None:
    words = JvmOutput()
    words.path.write_text(
        'WARN Utils\nException in thread "main" org.apache.spark.SparkException: Master must be\n\tat x'
    )
    try:
        assert words.why_it_ended(RuntimeError("[JAVA_GATEWAY_EXITED] …")) == (
            "Spark does not start: Master must be. Look at --master and --conf"
        )
        assert words.why_it_ended(RuntimeError("something else")) is None
    finally:
        words.forget()


def test_without_a_terminal_a_job_tells_line_by_line_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "TOLD_EVERY_S", 0.0)
    bar = options.Bar(Progress(disable=True))
    bar.step("Archiving")
    bar.rows(0)
    bar.rows(1_200, lag_s=7.0)

    assert re.fullmatch(r"Archiving\n  1,200 rows, [\d,]+/s, 7 s behind\n", capfd.readouterr().err)


def test_results_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(JobFailed, match=r"cannot be written: Not a directory. Name another folder for the results"):
        settle_folder(str(tmp_path / "notes.txt" / "report"))


def test_a_full_disk_is_no_mistake_of_ours() -> None:
    assert "no room left on the disk" in str(explained(OSError(errno.ENOSPC, "No space left on device", "/archive")))


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    assert explained(KeyError("rows")) is None
    assert explained(BrokenPipeError(errno.EPIPE, "Broken pipe")) is None
