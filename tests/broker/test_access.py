"""Who may do what, without a file in sight."""

import fnmatch
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.broker.access import (
    ANONYMOUS_ADMIN,
    Access,
    BadGrant,
    Caller,
    Former,
    Grant,
    Key,
    KeyNeeded,
    KeyUnknown,
    NotAllowed,
    RateLimited,
    Role,
    TooManyQueuesMade,
    hash_of,
)

SECRET = "s" * 43
ID = "0123456789ab"
GOOD = f"Bearer pk_{ID}_{SECRET}"


def key(*grants: Grant, key_id: str = ID, secret: str = SECRET, queues_max: int | None = None) -> Key:
    return Key(
        id=key_id,
        name="shop",
        secret_sha256=hash_of(secret),
        ending=secret[-4:],
        grants=grants or (Grant(Role.READ, "*"),),
        queues_max=queues_max,
        created_at="2026-11-16T00:00:00Z",
    )


def refused(access: Access, header: str | None) -> type[Exception] | None:
    try:
        access.authenticate(header)
    except (KeyNeeded, KeyUnknown) as error:
        return type(error)
    return None


def test_without_keys_everybody_may_do_everything() -> None:
    access = Access.open()
    for header in (None, GOOD, "nonsense"):
        assert access.authenticate(header) is ANONYMOUS_ADMIN
    ANONYMOUS_ADMIN.check(Role.ADMIN, "orders")
    assert ANONYMOUS_ADMIN.may_list("orders.dead")
    ANONYMOUS_ADMIN.check_may_create("orders", [f"queue-{number}" for number in range(1_000)])


def test_no_keys_is_not_the_same_as_an_empty_list_of_keys() -> None:
    assert Access.open().is_open
    assert not Access(()).is_open
    assert refused(Access(()), GOOD) is KeyUnknown
    assert refused(Access(()), None) is KeyNeeded


def test_a_good_key_lets_its_holder_in() -> None:
    access = Access([key(Grant(Role.WRITE, "orders*"))])
    for header in (GOOD, GOOD.replace("Bearer", "bEARER"), GOOD.replace(" ", "   "), f"{GOOD}  "):
        assert access.authenticate(header).name == "shop"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic pk_{ID}_{SECRET}",
        f"pk_{ID}_{SECRET}",
        f"Bearer pk_{ID}_{SECRET[:-1]}t",
        f"Bearer pk_{ID}_{SECRET[:-1]}",
        f"Bearer pk_{ID}_{SECRET}s",
        f"Bearer pk_{ID[:-1]}c_{SECRET}",
        f"Bearer pk_{ID.upper()}_{SECRET}",
        f"Bearer\tpk_{ID}_{SECRET}",
        f"Bearer pk_{ID}_{SECRET}\n",
        f"Bearer pk_{ID}_{SECRET}, Bearer pk_{ID}_{SECRET}",
        f"Bearer pk_{ID}_{'ſ' * 43}",
        f"Bearer {hash_of(SECRET).hex()}",
    ],
)
def test_what_is_nearly_a_key_is_refused(header: str) -> None:
    assert refused(Access([key()]), header) is KeyUnknown


@given(st.one_of(st.text(), st.text().map(lambda text: f"Bearer {text}"), st.text().map(lambda text: GOOD + text)))
@example(GOOD)
def test_only_the_key_itself_opens(header: str) -> None:
    is_good = header.strip(" ") == GOOD and not header.startswith(" ")
    assert refused(Access([key()]), header) is (None if is_good else KeyUnknown)


def test_a_refusal_does_not_repeat_the_key() -> None:
    wrong = f"Bearer pk_{ID}_{SECRET[:-1]}t"
    with pytest.raises(KeyUnknown) as caught:
        Access([key()]).authenticate(wrong)
    assert "sss" not in str(caught.value)


def test_replaced_keys_are_good_at_once_and_the_old_ones_are_not() -> None:
    access = Access([key()])
    other = key(key_id="ba9876543210", secret="t" * 43)
    access.replace([other])
    assert refused(access, GOOD) is KeyUnknown
    assert refused(access, f"Bearer pk_ba9876543210_{'t' * 43}") is None


LATTICE = {
    Role.METRICS: {Role.METRICS},
    Role.SEND: {Role.SEND, Role.SEE},
    Role.RECEIVE: {Role.RECEIVE, Role.SEE, Role.FETCH},
    Role.READ: {Role.READ, Role.SEE, Role.FETCH, Role.METRICS},
    Role.WRITE: set(Role) - {Role.ADMIN},
    Role.ADMIN: set(Role),
}


@pytest.mark.parametrize("held", list(LATTICE))
@pytest.mark.parametrize("asked", list(Role))
def test_a_role_allows_what_the_table_says_and_nothing_else(held: Role, asked: Role) -> None:
    assert Caller("shop", (Grant(held, "orders"),)).has(asked, "orders") == (asked in LATTICE[held])


@pytest.mark.parametrize("role", [Role.SEE, Role.FETCH])
def test_what_several_roles_bring_is_not_granted_by_itself(role: Role) -> None:
    with pytest.raises(BadGrant, match="is no role of a key"):
        Grant(role, "*")


def test_a_refusal_names_the_roles_that_would_do() -> None:
    with pytest.raises(NotAllowed, match="does not have the role receive or read on orders"):
        Caller("shop", (Grant(Role.SEND, "*"),)).check(Role.FETCH, "orders")


def test_roles_hold_for_the_queues_of_their_pattern() -> None:
    caller = Caller("shop", (Grant(Role.WRITE, "orders*"), Grant(Role.READ, "*")))
    caller.check(Role.WRITE, "orders")
    caller.check(Role.WRITE, "orders.dead")
    caller.check(Role.READ, "mails")
    with pytest.raises(NotAllowed, match="'shop' does not have the role write on mails"):
        caller.check(Role.WRITE, "mails")
    with pytest.raises(NotAllowed):
        caller.check(Role.ADMIN, "orders")


def test_a_caller_sees_only_queues_it_has_a_role_on() -> None:
    caller = Caller("shop", (Grant(Role.WRITE, "orders"),))
    assert caller.may_list("orders")
    assert not caller.may_list("orders.dead")
    assert not caller.may_list("orders2")


@given(st.text("ab.*", min_size=1, max_size=8), st.text("ab.", max_size=12))
@example("a*a", "a")
@example("*ab*ab", "ab")
def test_a_star_stands_for_any_characters_or_none(pattern: str, queue: str) -> None:
    assert Caller("a", (Grant(Role.READ, pattern),)).has(Role.READ, queue) == bool(
        re.fullmatch(fnmatch.translate(pattern), queue)
    )


@pytest.mark.parametrize("pattern", ["", "a b", "q/../x", "[a]", "ä", "a\n", "a" * 101])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadGrant):
        Grant(Role.READ, pattern)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not Caller("a", (Grant(Role.READ, "*a" * 49 + "*b"),)).has(Role.READ, "a" * 85)


def test_a_limit_counts_the_queues_that_are_there_under_the_key() -> None:
    caller = Caller("shop", (Grant(Role.ADMIN, "shop-*"), Grant(Role.READ, "*")), queues_max=2)
    caller.check_may_create("shop-b", ["shop-a", "mails", "shop-a.dead"])
    with pytest.raises(TooManyQueuesMade, match="may have 2 queues and topics, and there are 2"):
        caller.check_may_create("shop-c", ["shop-a", "shop-b"])


def test_topics_count_like_queues_for_what_a_key_may_have() -> None:
    caller = Caller("shop", (Grant(Role.ADMIN, "shop-*"),), queues_max=2)
    caller.check_may_create("shop-b", ["shop-a"], others=["events"])
    with pytest.raises(TooManyQueuesMade):
        caller.check_may_create("shop-b", ["shop-a"], others=["shop-a"])


def test_making_a_queue_that_is_there_already_needs_no_room() -> None:
    Caller("shop", (Grant(Role.ADMIN, "*"),), queues_max=1).check_may_create("orders", ["orders"])


def test_the_limit_does_not_stand_in_for_the_role() -> None:
    with pytest.raises(NotAllowed):
        Caller("shop", (Grant(Role.WRITE, "*"),), queues_max=10).check_may_create("orders", [])


def test_those_who_watch_are_told_once_when_the_key_is_revoked() -> None:
    access = Access([key(), key(key_id="ba9876543210")])
    told: list[str] = []
    access.watch(access.authenticate(GOOD), lambda: told.append("mine"))
    access.watch(access.authenticate(GOOD.replace(ID, "ba9876543210")), lambda: told.append("other"))
    access.replace([key(key_id="ba9876543210")])
    access.replace([key(key_id="ba9876543210")])
    assert told == ["mine"]


def test_those_who_watch_an_open_server_are_told_of_its_first_key() -> None:
    access = Access.open()
    told: list[str] = []
    access.watch(access.authenticate(None), lambda: told.append("everybody"))
    access.replace([key()])
    assert told == ["everybody"]


def test_who_watches_a_caller_that_has_ended_is_told_at_once_and_who_stopped_is_not() -> None:
    access = Access([key()])
    caller = access.authenticate(GOOD)
    told: list[str] = []
    access.watch(caller, lambda: told.append("stopped"))()
    access.replace(())
    access.watch(caller, lambda: told.append("late"))
    assert told == ["late"]
    with pytest.raises(KeyUnknown):
        access.check_good(caller)


def test_an_expired_key_is_refused_and_its_watchers_are_told() -> None:
    now = [1_000]
    access = Access([replace(key(), expires_at_ms=2_000)], now_ms=lambda: now[0])
    told: list[str] = []
    access.watch(access.authenticate(GOOD), lambda: told.append("mine"))
    assert access.next_end_ms() == 1_000
    now[0] = 2_000
    assert refused(access, GOOD) is KeyUnknown
    access.tell_those_who_ended()
    assert told == ["mine"]
    assert access.next_end_ms() is None


def test_a_caller_stays_the_same_when_its_key_is_rotated_or_others_change() -> None:
    access = Access([key()], now_ms=lambda: 0)
    caller = access.authenticate(GOOD)
    rotated = replace(key(secret="n" * 43), former=Former(hash_of(SECRET), None, ends_at_ms=5))
    access.replace([rotated, key(key_id="ba9876543210")])
    assert access.authenticate(GOOD) is caller
    assert caller.ends_at_ms == 5
    access.replace([key(Grant(Role.SEND, "*"))])
    assert caller.is_revoked, "with other rights it is another caller"


def test_a_key_that_goes_too_fast_is_told_when_it_may_go_on() -> None:
    now = [1_000_000]
    access = Access([replace(key(), requests_per_s=2)], now_ms=lambda: now[0])
    caller = access.authenticate(GOOD)
    access.admit(caller)
    access.admit(caller)
    with pytest.raises(RateLimited, match="may do 2 requests per second") as caught:
        access.admit(caller)
    now[0] += caught.value.retry_after_ms
    access.admit(caller)


def test_bytes_are_paid_for_after_they_were_sent() -> None:
    now = [1_000_000]
    access = Access([replace(key(), bytes_per_s=1_000)], now_ms=lambda: now[0])
    caller = access.authenticate(GOOD)
    access.admit(caller)
    access.charge(caller, 3_000)
    assert 2_000 <= access.wait_ms(caller) <= 2_001
    with pytest.raises(RateLimited, match="1000 bytes per second"):
        access.admit(caller)
    now[0] += 2_001
    access.admit(caller)


def test_both_secrets_of_a_key_share_its_rate_and_so_do_reloads() -> None:
    former = Former(hash_of("f" * 43), None, ends_at_ms=2_000_000)
    limited = replace(key(), requests_per_s=1, former=former)
    access = Access([limited], now_ms=lambda: 1_000_000)
    access.admit(access.authenticate(GOOD))
    access.replace([limited, key(key_id="ba9876543210")])
    with pytest.raises(RateLimited):
        access.admit(access.authenticate(GOOD.replace(SECRET, "f" * 43)))
