"""The file of a service: what it may say, what it says by default, and how it is told what is wrong."""

from pathlib import Path

import pytest

from penstock.pipeline.service.plan import BadPlan, Plan, read_plan

WHOLE = """
[pipeline]
source = "http://127.0.0.1:8080"
archive = "s3://bucket/archive"
out = "/srv/pipeline"
listen = "0.0.0.0:9000"
retry = "1s"
retry_max = "1m"

[jobs.archive]
trim = true

[jobs.orders]
kind = "signals"
queues = ["orders"]
at = "23:59"
window = "1m"

[jobs.signals]
from = "source"

[jobs.audit]

[spark]
"spark.driver.memory" = "2g"
spark.sql.shuffle.partitions = 4
"""


def plan_of(text: str, folder: Path) -> Plan:
    (folder / "pipeline.toml").write_text(text)
    return read_plan(folder / "pipeline.toml", key="sesame")


def test_a_file_says_what_runs_when_and_where(tmp_path: Path) -> None:
    plan = plan_of(WHOLE, tmp_path)
    archive, orders, signals, audit = plan.jobs

    assert (plan.listen, plan.retry_s, plan.retry_s_max, plan.stop_wait_s) == (("0.0.0.0", 9_000), 1, 60, 60)
    assert plan.spark == {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
    assert [(job.kind, job.every_s, job.at_s) for job in plan.jobs] == [
        ("archive", 10, None),
        ("signals", None, 86_340),
        ("signals", 300, None),
        ("audit", None, 10_800),
    ]
    assert [plan.place_of(job).where for job in plan.jobs] == [
        "http://127.0.0.1:8080",
        "s3://bucket/archive",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:8080",
    ]
    assert (plan.place_of(orders).queues, plan.place_of(orders).key) == (("orders",), "sesame")
    assert plan.out_of(orders) == "/srv/pipeline/orders"
    assert (archive.options["trim"], orders.options["window"], signals.options["tenants"]) == (True, "1m", 10)
    assert audit.interval_s == 86_400
    assert "sesame" not in repr(plan)


BEGIN = '[pipeline]\nsource = "http://h"\narchive = "a"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pipeline = 1", "pipeline is 1; it must be a section, as [pipeline]"),
        ("[pipeline", "is no TOML: "),
        ("[pipelines]", "there is no section [pipelines]; there are [pipeline], [jobs.NAME] and [spark]"),
        ("[pipeline]\n[jobs.skew]", "pipeline.source is missing"),
        (BEGIN, "there is no job: add a section such as [jobs.signals]"),
        (BEGIN + "sourec = 'x'\n[jobs.skew]", "pipeline has no key sourec; there are: source, archive"),
        (BEGIN + "sourec = 'x'\n[jobs.skew]", "Do you mean source?"),
        (BEGIN + "listen = '9189'\n[jobs.skew]", "pipeline.listen is '9189'; it must be HOST:PORT"),
        (BEGIN + "retry = 5\n[jobs.skew]", 'pipeline.retry is 5; it must be a time such as "30s"'),
        (BEGIN + "[jobs.skews]", "jobs.skews.kind is 'skews'; it must be one of archive, signals, skew"),
        (BEGIN + "[jobs.'a b']\nkind = 'skew'", "jobs.a b: a name has A-Z"),
        (BEGIN + "[jobs.tables]\nkind = 'skew'", "is not `tables`, as it is that of a folder"),
        (BEGIN + "[jobs.skew]\nevery = '5'", "jobs.skew.every is '5'; it must be a time such as"),
        (BEGIN + "[jobs.skew]\nevery = '31d'", "30 days at most"),
        (BEGIN + "[jobs.skew]\nat = '24:00'", "jobs.skew.at is '24:00'; it must be a time of day in UTC, such as"),
        (BEGIN + "[jobs.skew]\nat = '01:00'\nevery = '5m'", "jobs.skew.every and jobs.skew.at are both there"),
        (BEGIN + "[jobs.skew]\nqueues = 'orders'", "jobs.skew.queues is 'orders'; it must be a list of texts"),
        (BEGIN + "[jobs.skew]\nwindow = '1m'", "jobs.skew has no key window; there are: kind, every, at, queues"),
        (BEGIN + "[jobs.skew]\nfrom = 'server'", "jobs.skew.from is 'server'; it must be archive or source"),
        (BEGIN + "[jobs.archive]\ntrim = 1", "jobs.archive.trim is 1; it must be true or false"),
        (
            BEGIN + "[jobs.archive]\ntrim = true\nqueues = ['a']",
            "jobs.archive.trim is for a server, and for an archive",
        ),
        (BEGIN + "[jobs.archive]\n[jobs.b]\nkind = 'archive'", "jobs.b writes the archive of jobs.archive"),
        (BEGIN + "[jobs.signals]\ntenants = 1000", "jobs.signals.tenants is 1000; it must be a number from 1 to 100"),
        (BEGIN + "[jobs.skew]\n[spark]\na = [1]", "spark.a is [1]; it must be a text, a number, true or false"),
        ("[pipeline]\nsource = 'data'\n[jobs.archive]", "jobs.archive needs pipeline.archive"),
        ("[pipeline]\nsource = 'data'\n[jobs.upkeep]", "jobs.upkeep needs pipeline.archive"),
        (
            "[pipeline]\nsource = 'postgresql://u:sesame@h/shop'\n[jobs.audit]",
            "jobs.audit audits a server, and pipeline.source is 'postgresql://u:…@h/shop'",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_told_by_its_key(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadPlan) as error:
        plan_of(text, tmp_path)

    assert str(error.value).startswith(f"{tmp_path / 'pipeline.toml'}")
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match=r"pipeline.toml cannot be read: No such file or directory"):
        read_plan(tmp_path / "pipeline.toml")
