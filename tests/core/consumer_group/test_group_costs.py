"""What a request costs in a consumer group does not grow with the members that it does not touch."""

from collections.abc import Callable

import pytest

from penstock.core.consumer_group.group import Group
from penstock.core.consumer_group.members import OLD_DEADLINES, GroupSettings
from penstock.core.consumer_group.requests import GroupState, Joined, JoinRequest, Leaver, MemberIdNeeded, SyncRequest
from tests.steps import counted

SESSION_MS = 1_000


def join_request(member_id: str = "", *, is_old: bool = True) -> JoinRequest:
    return JoinRequest(
        member_id=member_id,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=600,
        protocol_type="consumer",
        protocols=(("range", b"r"), ("sticky", b"s")),
        needs_member_id=not is_old,
    )


class Crowd:
    """A group that is driven as a server drives it: after each request it is asked for its size and its next time."""

    def __init__(self, many: int) -> None:
        self.group = Group("readers", GroupSettings(initial_delay_ms=0))
        self.now_ms = 0
        self.ids = [""] * many

    def after(self) -> None:
        self.group.next_ms()
        self.group.size_bytes()

    def join(self) -> None:
        for place, member_id in enumerate(self.ids):
            answers = self.group.join(join_request(member_id), ticket=place, now_ms=self.now_ms, token=place)
            self.after()
            for ticket, said in answers:
                if isinstance(said, Joined):
                    self.ids[ticket] = said.member_id
        self.ids = list(self.group.roster.members)

    def sync(self) -> None:
        for place, member_id in enumerate(self.ids):
            request = SyncRequest(member_id=member_id, generation=self.group.generation)
            self.group.sync(request, ticket=place, now_ms=self.now_ms)
            self.after()

    def sync_and_hang_up(self) -> None:
        for place, member_id in enumerate(self.ids[1:]):
            request = SyncRequest(member_id=member_id, generation=self.group.generation)
            self.group.sync(request, ticket=place, now_ms=self.now_ms)
            self.group.abandon(place, now_ms=self.now_ms)
            self.after()

    def beat_and_commit_for_two_sessions(self) -> None:
        for _ in range(4):
            self.now_ms += SESSION_MS // 2
            for member_id in self.ids:
                self.group.heartbeat(member_id, None, self.group.generation, now_ms=self.now_ms)
                self.group.check_commit(member_id, None, self.group.generation, now_ms=self.now_ms)
                self.group.tick(self.now_ms)
                self.after()


def lines_of(act: Callable[[], None]) -> int:
    with counted() as steps:
        act()
    return steps.longest


def lines_for_each(many: int) -> dict[str, float]:
    crowd = Crowd(many)
    crowd.join()
    crowd.join()
    acts = (crowd.sync_and_hang_up, crowd.sync, crowd.beat_and_commit_for_two_sessions, crowd.join, crowd.sync)
    found = {f"{place} {act.__name__}": lines_of(act) / many for place, act in enumerate(acts)}
    assert crowd.group.state is GroupState.STABLE
    assert len(crowd.group.roster.members) == many
    return found


def test_a_request_costs_the_same_in_a_group_of_many_members() -> None:
    few, many = lines_for_each(10), lines_for_each(200)
    assert {name: lines for name, lines in many.items() if lines > 1.5 * few[name]} == {}


def test_members_that_come_and_leave_leave_no_deadlines_behind() -> None:
    group = Group("readers", GroupSettings())
    for token in range(1_000):
        with pytest.raises(MemberIdNeeded) as needed:
            group.join(join_request(is_old=False), ticket=token, now_ms=token, token=token)
        group.leave([Leaver(needed.value.member_id)], now_ms=token)
    assert len(group.roster.deadlines) <= OLD_DEADLINES + 2
