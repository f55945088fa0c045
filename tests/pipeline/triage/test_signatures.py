"""Errors that have one cause have one signature, whatever they name; those of two causes have two."""

from collections import defaultdict

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.client.worker.settings import describe
from penstock.pipeline.triage.signatures import with_signature

UUIDS = ("6f1c2b1e-8f7a-4d55-9a3e-0c7f5d2b9a10", "00000000-0000-4000-8000-000000000001")

# Each line is one cause: its texts fall together, and with those of no other line.
CAUSES: dict[str, tuple[str, ...]] = {
    "refused": (
        "ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.3.17', 5432)",
        "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5433)",
    ),
    "unreachable": ("OSError: [Errno 113] Connect call failed ('10.0.3.17', 5432)",),
    "host": (
        "could not connect to db-1.internal:5432 after 3 tries",
        "could not connect to localhost:6543 after 12 tries",
        "could not connect to 10.1.2.3:5432 after 1 tries",
        "could not connect to [fe80::1]:5432 after 1 tries",
    ),
    "unavailable": (
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://pay.example/v1/charge/81",
        "HTTPError: 503 Server Error: Service Unavailable for url: http://pay.example:8080/v1/charge/82?retry=1",
    ),
    "bad gateway": ("HTTPError: 502 Server Error: Service Unavailable for url: https://pay.example/v1/charge/81",),
    "status": ("payment 17 failed with status code 402", "payment 5 failed with status code 402"),
    "other status": ("payment 17 failed with status code 409",),
    "customer": ("no such customer 8812", "no such customer 17", "no such customer 1,204"),
    "customer of a name": ("no such customer 'ada'", 'no such customer "o\'neill, b."', "no such customer `eve`"),
    "key": ("KeyError: 'price'",),
    "other key": ("KeyError: 'customer'",),
    "key of an id": ("KeyError: 'c-1012'", "KeyError: 'c-77'"),
    "attribute": ("AttributeError: 'NoneType' object has no attribute 'sku'",),
    "other attribute": ("AttributeError: 'NoneType' object has no attribute 'total'",),
    "uuid": (f"order {UUIDS[0]} is locked", f"order {UUIDS[1]} is locked", f"order {UUIDS[1].upper()} is locked"),
    "hexadecimal": ("commit 9f86d081884c7d65 is missing", "commit 0a1b2c3d is missing"),
    "prefix": ("charge ch_3PqLx92eZvKYlo was declined", "charge ch_1MmX8aLkdIwHu7 was declined"),
    "ulid": ("job 01ARZ3NDEKTSV4RRFFQ69G5FAV timed out", "job 01BX5ZZKBKACTAV9WEVGEMMVRZ timed out"),
    "memory": ("<Session object at 0x7f3a9c1d2e50> is closed", "<Session object at 0x55d0c8> is closed"),
    "path": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/var/spool/in/a.csv'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/b/c-9.csv'",
    ),
    "bare path": ("cannot open /var/spool/in/a.csv", "cannot open ./in/b.csv", r"cannot open C:\spool\in\a.csv"),
    "mail": ("550 mailbox of ada@example.org is full", "550 mailbox of o.k+shop@mail.example.co.uk is full"),
    "time": (
        "token expired at 2026-03-01T12:00:00Z",
        "token expired at 2026-03-01 12:00:00.123+01:00",
        "token expired at 2025-12-31",
        "token expired at Sun, 01 Mar 2026 12:00:00 GMT",
    ),
    "duration": ("timed out after 30s", "timed out after 1.5 s", "timed out after 900ms"),
    "list": ("ids [1, 2, 3] are taken", "ids [17] are taken", "ids [4, 5] are taken"),
    "unique": (
        (
            'psycopg.errors.UniqueViolation: duplicate key value violates unique constraint "orders_pkey"\n'
            "DETAIL:  Key (id)=(17) already exists."
        ),
        (
            'UniqueViolation: duplicate key value violates unique constraint "orders_pkey"\r\n'
            "DETAIL:  Key (id)=(99812) already exists."
        ),
    ),
    "other constraint": (
        (
            'UniqueViolation: duplicate key value violates unique constraint "orders_mail"\n'
            "DETAIL:  Key (id)=(17) already exists."
        ),
    ),
    "apostrophes": ("can't reach the user's account 5", "can't reach the user's account 6"),
    "traceback": (
        (
            'Traceback (most recent call last):\n  File "/srv/app/shop/work.py", line 10, in work\n    save(order)\n'
            '    ~~~~^^^^^^^\n  File "/srv/shop/orders.py", line 88, in save\n    raise ValueError(x)\nValueError: -5'
        ),
        (
            'Traceback (most recent call last):\n  File "C:\\app\\shop\\work.py", line 12, in work\n    save(order)\n'
            '  File "C:\\app\\shop\\orders.py", line 91, in save\n    raise ValueError(total)\nValueError: -17'
        ),
    ),
    "the same error from elsewhere": (
        (
            'Traceback (most recent call last):\n  File "/srv/app/shop/work.py", line 10, in work\n    check(order)\n'
            '  File "/srv/app/shop/orders.py", line 44, in check\n    raise ValueError(total)\nValueError: -5'
        ),
    ),
    "worker": (
        "ValueError: -5\n  /srv/a/work.py:10 in work: save(order)\n  /srv/a/orders.py:88 in keep: raise ValueError(x)",
        "ValueError: 12\n  /opt/b/work.py:11 in work: save(order)\n  /opt/b/orders.py:90 in keep: raise ValueError(t)",
    ),
    "java": (
        "java.lang.IllegalStateException: order 5\n\tat shop.Orders.save(Orders.java:88)\n\tat shop.Work.run(W.java:1)",
        "java.lang.IllegalStateException: order 6\n\tat shop.Orders.save(Orders.java:90)\n\tat shop.Work.run(W.java:2)",
    ),
    "nothing": ("", "  \n"),
}

BODIES = {
    b'{"id": 1, "name": "ada"}': "{id: number, name: string}",
    b'{"name": "eve", "id": 2.5}': "{id: number, name: string}",
    b'{"id": 1, "name": null, "items": [1], "to": {"a": 1}, "gift": true}': (
        "{gift: boolean, id: number, items: array, name: null, to: object}"
    ),
    b'{"17": 1, "18": 2}': "{<n>: number}",
    b"[1, 2]": "JSON array",
    b"12": "JSON number",
    b"": "empty",
    b"hello, \xc3\xa9": "text, below 1 KiB",
    b"x" * 2_000: "text, 1 to 64 KiB",
    b"\x00\xff" * 40_000: "binary, 64 KiB and more",
    b'{"id": 1': "text, below 1 KiB",
}

HOSTILE = [
    (unit * 1_024)[:100_000]
    for unit in (
        "a",
        "1",
        "a.",
        "/a",
        "'",
        '"',
        "\\",
        "a@",
        "::",
        "1:",
        " ",
        "\n",
        '\n  File "',
        "\n  a/:",
        "http://",
        "((",
    )
]


def errors(spark: SparkSession, texts: "list[str | None]") -> DataFrame:
    return spark.createDataFrame([(text,) for text in texts], "error STRING")


def test_errors_fall_together_by_their_cause_and_never_across_causes(spark: SparkSession) -> None:
    causes = {text: cause for cause, texts in CAUSES.items() for text in texts}
    found = defaultdict(set)
    for row in with_signature(errors(spark, list(causes))).collect():
        found[causes[row.error]].add((row.signature_id, row.signature))
    assert {cause: signatures for cause, signatures in found.items() if len(signatures) > 1} == {}
    ids = [identity for signatures in found.values() for identity, _ in signatures]
    assert len(set(ids)) == len(CAUSES)
    assert all(len(identity) == 12 for identity in ids)


def test_a_signature_reads_like_the_error_and_has_the_same_id_in_every_version(spark: SparkSession) -> None:
    texts: list[str | None] = [
        "ConnectionError: 10.0.3.17:5432 refused order 8812\n  /srv/shop/orders.py:88 in save: db.insert(row)",
        CAUSES["traceback"][0],
        None,
    ]
    rows = {row.error: (row.signature_id, row.signature) for row in with_signature(errors(spark, texts)).collect()}
    assert rows == {
        texts[0]: ("1972889d1fd9", "ConnectionError: <host> refused order <n> | orders.py:save"),
        texts[1]: ("0661f7413c20", "ValueError: <n> | work.py:work > orders.py:save"),
        None: ("dcaab2c04fa2", "(no error text)"),
    }


def test_the_shape_of_a_body_is_part_of_its_signature(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("no such customer 5", body) for body in [*BODIES, None]], "error STRING, data BINARY"
    )
    found = {row.data and bytes(row.data): row for row in with_signature(rows).collect()}
    plain = found.pop(None)
    assert plain.signature == "no such customer <n>"
    assert {body: row.signature for body, row in found.items()} == {
        body: f"no such customer <n> | {shape}" for body, shape in BODIES.items()
    }
    # The first part of the id is that of the error alone.
    assert {row.signature_id[:13] for row in found.values()} == {f"{plain.signature_id}-"}
    assert len({row.signature_id for row in found.values()}) == len(set(BODIES.values()))


def test_what_a_worker_keeps_of_an_error_is_understood(spark: SparkSession) -> None:
    def innermost(words: str) -> None:
        raise LookupError(words)

    kept: list[str | None] = []
    for words in ("no such customer 5", "no such customer 1234567"):
        with pytest.raises(LookupError) as caught:
            innermost(words)
        kept.append(describe(caught.value))
    found = {row.signature for row in with_signature(errors(spark, kept)).collect()}
    here = "test_signatures.py"
    name = "test_what_a_worker_keeps_of_an_error_is_understood"
    assert found == {f"LookupError: no such customer <n> | {here}:{name} > {here}:innermost"}


def test_hostile_errors_are_cut_and_cost_no_more_than_others(spark: SparkSession) -> None:
    # A pattern that is exponential in any of these would never come back; one that looks at all of it, hardly.
    found = with_signature(errors(spark, list(HOSTILE))).collect()
    assert len(found) == len(HOSTILE)
    assert max(len(row.signature) for row in found) < 2_000
