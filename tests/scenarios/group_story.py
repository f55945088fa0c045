"""Tells a story of a consumer group: reads who says what, and writes down what is answered.

    # Prose, as it is.
    settings initial_delay_ms=0             before anything else, if at all
     200  ann joins range sticky            the time in milliseconds, who, what
          → ann: generation 1 by range, leads ann-1
          = Stable, generation 1            whenever that has changed

What may be said: `joins PROTOCOL… [instance=I] [session=MS] [rebalance=MS] [reads=T,T] [old]
[skips]`, `syncs [MEMBER=ASSIGNMENT…]`, `beats`, `commits [generation=N]`, `leaves`,
`vanishes` (its connection is cut), `forgets` (it was restarted, and knows no member id),
`watches` (it does nothing, but time passes). `old` is a client that cannot be told its
member id first; the metadata of a protocol is that of a consumer which reads the topics.

A story that is told again must be the same, letter by letter.
"""

import struct
from dataclasses import dataclass, field

from penstock.core.consumer_group.group import Answer, Group
from penstock.core.consumer_group.members import GroupSettings
from penstock.core.consumer_group.requests import (
    GroupRefusal,
    GroupState,
    Joined,
    JoinRequest,
    Leaver,
    MemberIdNeeded,
    Synced,
    SyncRequest,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself, as Kafka's clients write it."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@dataclass
class Actor:
    name: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None
    ticket: int | None = None


@dataclass
class Story:
    group: Group
    now_ms: int = 0
    lines: list[str] = field(default_factory=list)
    actors: dict[str, Actor] = field(default_factory=dict)
    tickets: dict[int, Actor] = field(default_factory=dict)
    tokens: int = 0
    seen: tuple[GroupState, int] = (GroupState.EMPTY, 0)

    def line(self, text: str) -> None:
        at, name, verb, *words = text.split()
        self.pass_time(int(at))
        self.lines.append(text)
        actor = self.actors.setdefault(name, Actor(name))
        try:
            answers = getattr(self, verb)(actor, words)
            self.write(answers or [])
        except GroupRefusal as refusal:
            self.write([Answer(-1, refusal)], actor)

    def pass_time(self, until_ms: int) -> None:
        """Go from one moment at which something is due to the next."""
        while (next_ms := self.group.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            answers, before = self.group.tick(self.now_ms), self.seen
            if answers or (self.group.state, self.group.generation) != before:
                self.lines.append(f"{self.now_ms:>6}  time has passed")
                self.write(answers)
        self.now_ms = until_ms

    def write(self, answers: list[Answer], actor: Actor | None = None) -> None:
        for ticket, said in answers:
            told = actor or self.tickets.pop(ticket)
            told.ticket = None
            self.lines.append(f"        → {told.name}: {self.hear(told, said)}")
        if (self.group.state, self.group.generation) != self.seen:
            self.seen = self.group.state, self.group.generation
            self.lines.append(f"        = {self.group.state.value}, generation {self.group.generation}")

    def hear(self, actor: Actor, said: Joined | Synced | GroupRefusal) -> str:
        match said:
            case Joined():
                actor.member_id, actor.generation = said.member_id, said.generation
                role = f"follows {short(said.leader)}"
                if said.members:
                    role = "leads " + " ".join(short(each.member_id) for each in said.members)
                note = ", and is to assign nothing" if said.skip_assignment else ""
                return f"generation {said.generation} by {said.protocol}, {role}{note}"
            case Synced():
                return f"has {said.assignment.decode() or 'nothing'}"
            case MemberIdNeeded():
                actor.member_id = said.member_id
                return f"join again as {short(said.member_id)}"
            case _:
                return type(said).__name__

    def wait(self, actor: Actor) -> int:
        ticket = max(self.tickets, default=0) + 1
        self.tickets[ticket] = actor
        actor.ticket = ticket
        return ticket

    def joins(self, actor: Actor, words: list[str]) -> list[Answer]:
        options = dict(word.split("=") for word in words if "=" in word)
        names = [word for word in words if "=" not in word and word not in {"old", "skips"}]
        metadata = subscription(*options.get("reads", "events").split(","))
        actor.instance_id = options.get("instance", actor.instance_id)
        request = JoinRequest(
            member_id=actor.member_id,
            instance_id=actor.instance_id,
            client_id=actor.name,
            session_timeout_ms=int(options.get("session", SESSION_MS)),
            rebalance_timeout_ms=int(options.get("rebalance", REBALANCE_MS)),
            protocol_type="consumer",
            protocols=tuple((name, metadata) for name in names),
            needs_member_id="old" not in words,
            can_skip_assignment="skips" in words,
        )
        self.tokens += not actor.member_id
        return self.group.join(request, ticket=self.wait(actor), now_ms=self.now_ms, token=self.tokens)

    def syncs(self, actor: Actor, words: list[str]) -> list[Answer]:
        long = {short(member_id): member_id for member_id in self.group.roster.members}
        pairs = [word.split("=") for word in words]
        request = SyncRequest(
            member_id=actor.member_id,
            generation=actor.generation,
            instance_id=actor.instance_id,
            assignments={long[name]: assignment.encode() for name, assignment in pairs},
        )
        return self.group.sync(request, ticket=self.wait(actor), now_ms=self.now_ms)

    def beats(self, actor: Actor, words: list[str]) -> None:
        self.group.heartbeat(actor.member_id, actor.instance_id, actor.generation, now_ms=self.now_ms)
        self.lines.append(f"        → {actor.name}: yes")

    def commits(self, actor: Actor, words: list[str]) -> None:
        options = dict(word.split("=") for word in words)
        generation = int(options.get("generation", actor.generation))
        self.group.check_commit(actor.member_id, actor.instance_id, generation, now_ms=self.now_ms)
        self.lines.append(f"        → {actor.name}: yes")

    def leaves(self, actor: Actor, words: list[str]) -> list[Answer]:
        leaver = Leaver(actor.member_id, actor.instance_id)
        (refusal,), answers = self.group.leave([leaver], now_ms=self.now_ms)
        self.lines.append(f"        → {actor.name}: {type(refusal).__name__ if refusal else 'yes'}")
        return answers

    def vanishes(self, actor: Actor, words: list[str]) -> list[Answer]:
        assert actor.ticket is not None, "only who waits can be missed"
        del self.tickets[actor.ticket]
        return self.group.abandon(actor.ticket, now_ms=self.now_ms)

    def forgets(self, actor: Actor, words: list[str]) -> None:
        actor.member_id, actor.generation = "", -1

    def watches(self, actor: Actor, words: list[str]) -> None:
        """Nothing is said."""


def short(member_id: str) -> str:
    name, _, token = member_id.rpartition("-")
    return f"{name}-{int(token, 16)}"


def tell(text: str) -> str:
    """Play a story again from what was said in it, and return it with what was answered."""
    settings = GroupSettings()
    story = Story(Group("readers", settings))
    for line in text.splitlines():
        if line.startswith("settings "):
            story.group.settings = GroupSettings(**{k: int(v) for k, v in (w.split("=") for w in line.split()[1:])})
            story.lines.append(line)
        elif not line or line.startswith("#"):
            story.lines.append(line)
        elif not line.startswith("        ") and not line.endswith("time has passed"):
            story.line(line)
    return "\n".join(story.lines) + "\n"
