"""Who holds a message: found by an index that is made when it is first asked for, and right from then on."""

from penstock.core.queue.leases import Leases
from penstock.core.queue.queries import holders, look
from tests.core.queue.life import Life


def test_every_message_of_many_leases_is_found_with_its_lease_and_row() -> None:
    life = Life()
    sent = life.send(300)
    leases = [life.leased(3) for _ in range(50)]
    # One lease lapses in part, one is acked, others begin after the first question.
    assert look(life.state, sent[0]) is not None
    assert life.ack(leases[7])
    leases += [life.leased(100)]
    found = holders(life.state, sent)
    expected = {
        message: (lease.id, row)
        for nth, lease in enumerate(leases)
        if nth != 7
        for row, message in enumerate(lease.messages)
    }
    assert found == expected


def test_asking_for_one_message_looks_at_few_leases() -> None:
    looked: list[int] = []

    class Counting(Leases):
        def members(self, slot: int, mask: int):  # type: ignore[no-untyped-def]
            looked.append(slot)
            return super().members(slot, mask)

    for count in (100, 10_000):
        life = Life()
        life.state.leases = Counting()
        sent = life.send(count)
        for _ in range(count):
            life.leased(1)
        look(life.state, sent[0])
        looked.clear()
        seen = look(life.state, sent[count // 2])
        assert seen is not None
        assert seen.place == "leased"
        assert len(looked) <= 64


def test_an_index_is_empty_again_when_all_leases_have_ended() -> None:
    life = Life()
    sent = life.send(1_000)
    held = [life.leased(10) for _ in range(50)]
    look(life.state, sent[0])
    for lease in held:
        life.ack(lease)
    assert life.state.leases.index == {}
