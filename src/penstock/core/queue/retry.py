"""How long a failed message rests."""

from penstock.contract.queue_settings import QueueSettings

_DOUBLINGS_MAX = 40


def backoff_ms(settings: QueueSettings, attempt: int, roll: float) -> int:
    """Return how long a message rests after failing its ``attempt``-th delivery.

    The delay is uniform below an exponentially rising ceiling ("full jitter"),
    so that a thousand messages failed by one outage do not return as one herd.
    ``roll`` is a number in [0, 1) drawn by the caller: dice stay outside the core.
    A queue without jitter does not look at it: the delay is the ceiling.

    >>> settings = QueueSettings(backoff_ms_base=1_000, backoff_ms_max=60_000)
    >>> [backoff_ms(settings, attempt, roll=0.5) for attempt in (1, 2, 3, 10)]
    [500, 1000, 2000, 30000]
    >>> backoff_ms(QueueSettings(backoff_ms_base=1_000, has_jitter=False), 3, roll=0.5)
    4000
    """
    assert attempt >= 1
    assert 0.0 <= roll < 1.0
    # Beyond so many doublings every ceiling is reached, and the power would only grow.
    doublings = min(attempt - 1, _DOUBLINGS_MAX)
    ceiling = min(settings.backoff_ms_max, settings.backoff_ms_base * 2**doublings)
    return int(ceiling * roll) if settings.has_jitter else ceiling


def is_spent(settings: QueueSettings, deliveries: int, own_max: int) -> bool:
    """Whether a message has had its deliveries: its own limit's, or else the queue's.

    A queue whose limit is 0 never buries, whatever limits its messages have: dead
    letters are such a queue, and what is in them has nowhere to go.
    """
    most = own_max or settings.deliveries_max
    return settings.deliveries_max > 0 and deliveries >= most


def goes_back(settings: QueueSettings, deliveries: int) -> bool:
    """Whether a message that lapses after so many deliveries goes to the end: others are to be tried before it.

    >>> goes_back(QueueSettings(back_after_deliveries=3), 2), goes_back(QueueSettings(back_after_deliveries=3), 3)
    (False, True)
    """
    return 0 < settings.back_after_deliveries <= deliveries and not settings.is_fifo
