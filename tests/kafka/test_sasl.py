"""Logins without a connection: what is offered where, and what proves nothing."""

import hmac
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import pbkdf2_hmac

import pytest

from penstock.api.kafka.sasl import BadScram, Login, ScramExchange
from penstock.broker.access import Access, Former, Grant, Key, Role, Scram, hash_of

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


def test_a_key_is_sent_only_where_it_cannot_be_read_on_the_way() -> None:
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
def test_what_is_no_key_is_refused(said: bytes) -> None:
    login = Login(access(), is_private=True)
    login.begin("PLAIN")
    assert login.go_on(said)["error_code"] == 58
    assert login.caller is None


@pytest.mark.parametrize("said", [b"", b"n,,", b"p=tls-unique,,n=only,r=x", b"n,,n=only", b"n,,r=x", b"\xff"])
def test_a_scram_that_begins_badly_is_refused(said: bytes) -> None:
    login = Login(access(), is_private=False)
    login.begin("SCRAM-SHA-256")
    assert login.go_on(said)["error_code"] == 58
    assert login.caller is None


def login_by_scram(found: Access, user: str, password: str) -> tuple[list[bytes], int]:
    """Log in as a client does; return salt and iterations as they were said, and the last error."""
    login = Login(found, is_private=False)
    login.begin("SCRAM-SHA-256")
    first = login.go_on(f"n,,n={user},r=mine".encode())
    assert first["error_code"] == 0
    nonce, salt, iterations = first["auth_bytes"].split(b",")
    scram = Scram.of(password, salt=b64decode(salt[2:]), iterations=int(iterations[2:]))
    salted = pbkdf2_hmac("sha256", password.encode(), scram.salt, scram.iterations)
    signed = b",".join([f"n={user},r=mine".encode(), first["auth_bytes"], b"c=biws", nonce])
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(scram.stored_key, signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    last = login.go_on(b"c=biws," + nonce + b",p=" + proof)
    return [salt, iterations], last["error_code"]


@pytest.mark.parametrize("user", ["nobody", "f" * 12, "only"])
def test_an_unknown_user_is_answered_like_a_known_one_until_the_proof(user: str) -> None:
    # A key without SCRAM is as good as none.
    found = access(scram=None) if user == "only" else access()
    said, error = login_by_scram(found, user, TEXT)
    known, fine = login_by_scram(access(), "only", TEXT)
    assert (error, fine) == (58, 0)
    assert [len(each) for each in said] == [len(each) for each in known]
    again, _ = login_by_scram(found, user, TEXT)
    assert again == said, "a salt that changes would say that there is no such user"


def test_the_salt_of_an_unknown_user_is_the_same_after_a_restart() -> None:
    salts = {login_by_scram(Access([], seed=b"kept with the keys"), "nobody", TEXT)[0][0] for _ in range(2)}
    assert len(salts) == 1


def test_both_secrets_of_a_rotated_key_prove_it_until_the_former_ends() -> None:
    now = [1_000]
    new_text = f"pk_{1:012x}_{'n' * 43}"
    (key,) = access()._keys.values()  # type: ignore[union-attr]
    rotated = replace(
        key,
        secret_sha256=hash_of("n" * 43),
        scram=Scram.of(new_text, salt=SCRAM.salt, iterations=SCRAM.iterations),
        former=Former(key.secret_sha256, key.scram, ends_at_ms=2_000),
    )
    found = Access([rotated], now_ms=lambda: now[0])
    login = Login(found, is_private=True)
    login.begin("PLAIN")
    login.go_on(f"\0only\0{TEXT}".encode())
    known = [login.caller is not None]
    assert login_by_scram(found, "only", TEXT)[1] == 0
    assert login_by_scram(found, "only", new_text)[1] == 0
    now[0] = 2_000
    known.append(login.caller is not None)
    assert known == [True, False]
    assert login_by_scram(found, "only", new_text)[1] == 0


@pytest.mark.parametrize(
    "last", [b"", b"c=biws,r=xours", b"c=biws,r=xours,p=!", b"c=biws,r=xours,p=AAAA", b"c=eSws,r=xours,p=AA=="]
)
def test_a_proof_that_proves_nothing_is_refused(last: bytes) -> None:
    exchange = ScramExchange(b"n,,n=only,r=x", "ours")
    exchange.challenge(SCRAM)
    with pytest.raises(BadScram):
        exchange.prove(last, [SCRAM])


def test_the_example_of_the_rfc_is_proven() -> None:
    # RFC 7677, section 3.
    scram = Scram.of("pencil", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4_096)
    exchange = ScramExchange(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.challenge(scram) == first
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + proof
    assert exchange.prove(last, [SCRAM, scram]) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", scram)
