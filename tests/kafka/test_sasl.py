"""Logins without a connection: what is offered where, and what proves nothing."""

from base64 import b64decode

import pytest

from penstock.api.kafka.sasl import Login
from penstock.api.kafka.scram import BadScram, Exchange
from penstock.broker.access import Access, Grant, Key, Role, Scram, hash_of

SECRET = "s" * 43
TEXT = f"pk_{1:012x}_{SECRET}"
SCRAM = Scram.of(TEXT, salt=b"salt" * 4, iterations=4_096)


def access(*, scram: Scram | None = SCRAM) -> Access:
    key = Key(
        id=f"{1:012x}",
        name="only",
        secret_sha256=hash_of(SECRET),
        ending="ssss",
        grants=(Grant(Role.READ, "*"),),
        queues_max=None,
        created_at="2026-01-01T00:00:00Z",
        scram=scram,
    )
    return Access([key])


def test_a_key_is_said_only_where_nobody_can_read_it_on_the_way() -> None:
    login = Login(access(), is_private=False)
    assert login.begin("PLAIN") == {"error_code": 33, "mechanisms": ["SCRAM-SHA-256"]}
    assert login.go_on(f"\0only\0{TEXT}".encode())["error_code"] == 34
    assert login.has_failed
    assert login.caller is None


def test_a_key_that_is_said_lets_its_owner_in() -> None:
    login = Login(access(), is_private=True)
    assert login.begin("PLAIN")["error_code"] == 0
    assert login.go_on(f"\0only\0{TEXT}".encode())["error_code"] == 0
    assert login.caller is not None
    assert login.caller.name == "only"


@pytest.mark.parametrize("said", [b"", b"\0", b"\0only\0wrong", b"\xff\0\xff\0\xff", f"\0other\0{TEXT}".encode()])
def test_what_is_no_key_lets_nobody_in(said: bytes) -> None:
    login = Login(access(), is_private=True)
    login.begin("PLAIN")
    assert login.go_on(said)["error_code"] == 58
    assert login.caller is None


@pytest.mark.parametrize(
    "said", [b"", b"n,,", b"p=tls-unique,,n=only,r=x", b"n,,n=only", b"n,,r=x", b"\xff", b"n,,n=nobody,r=x"]
)
def test_a_scram_that_begins_badly_lets_nobody_in(said: bytes) -> None:
    login = Login(access(), is_private=False)
    login.begin("SCRAM-SHA-256")
    assert login.go_on(said)["error_code"] == 58
    assert login.caller is None


def test_a_key_from_before_scram_is_refused_by_it() -> None:
    login = Login(access(scram=None), is_private=False)
    login.begin("SCRAM-SHA-256")
    assert login.go_on(b"n,,n=only,r=x")["error_code"] == 58


@pytest.mark.parametrize(
    "last", [b"", b"c=biws,r=xours", b"c=biws,r=xours,p=!", b"c=biws,r=xours,p=AAAA", b"c=eSws,r=xours,p=AA=="]
)
def test_a_proof_that_proves_nothing_is_refused(last: bytes) -> None:
    exchange = Exchange(b"n,,n=only,r=x", "ours")
    exchange.challenge(SCRAM)
    with pytest.raises(BadScram):
        exchange.prove(last, SCRAM)


def test_the_example_of_the_rfc_is_proven() -> None:
    # RFC 7677, section 3.
    scram = Scram.of("pencil", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4_096)
    exchange = Exchange(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.challenge(scram) == first
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + proof
    assert exchange.prove(last, scram) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
