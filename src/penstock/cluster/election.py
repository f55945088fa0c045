"""The controller: fences nodes that started anew, and elects leaders.

Every node runs one. They need not agree on who may: each acts on what it has
read, the metadata store takes the first change and refuses the others, and all
read again. A controller that slept for an hour can do no harm either.
"""

from penstock.cluster.membership import Membership
from penstock.cluster.meta import NOT_GRANTED, Conflict, MetaStore, OutcomeUnknown, View
from penstock.core.replica import elect, fence


async def control(membership: Membership) -> None:
    """Bring the record in order after every read, until cancelled."""
    while True:
        view = await membership.changed()
        try:
            await put_in_order(view, membership.meta)
        except (Conflict, OutcomeUnknown):
            # Whatever came of it, the next read shows it.
            pass


async def put_in_order(view: View, meta: MetaStore) -> None:
    """Do the one thing that is to be done first, if there is any."""
    for node, broker in sorted(view.brokers.items()):
        if broker.epoch == NOT_GRANTED:
            fenced = fence(view.record, node, is_whole=broker.is_whole)
            if fenced != view.record:
                await meta.swap(fenced, revision=view.revision, broker_epochs={})
            else:
                await meta.grant(node, incarnation=broker.incarnation, revision=view.revision)
            return
    unfenced = {node: broker.epoch for node, broker in view.brokers.items() if broker.is_unfenced}
    elected = elect(view.record, unfenced)
    if elected != view.record:
        assert elected.leader is not None
        epochs = {elected.leader: unfenced[elected.leader]}
        # The old leader may be back since we read: it then counts on not being replaced while its lease runs (R6).
        await meta.swap(elected, revision=view.revision, broker_epochs=epochs, without_lease=view.record.leader)
