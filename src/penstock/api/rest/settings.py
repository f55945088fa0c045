"""A queue's settings in the words of REST, and back."""

from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from msgspec import UNSET, UnsetType

from penstock.api.rest.errors import bad_field
from penstock.api.rest.times import milliseconds, seconds
from penstock.contract.limits import LEASE_MS_MAX, WEIGHT_MAX
from penstock.contract.names import dead_letters_of, is_dead_letters
from penstock.contract.queue_settings import DedupScope, History, QueueSettings
from penstock.wire.queues import Retry, Settings, Tenants, Tiers

# REST allows a lease of no length, as others do; ours has one, and ends at once.
_LEASE_MS_MIN = 1


def settings_of(asked: Settings, queue: str, old: QueueSettings | None = None) -> QueueSettings:
    """Return the settings that were asked for; what is left out is as in ``old``, or has its default."""
    found = _translate(asked)
    is_live = old is None or old.dedup_scope is DedupScope.LIVE
    if "dedup_window_ms" in found and "dedup_scope" not in found and is_live:
        # Who says how long the window is wants one.
        found["dedup_scope"] = DedupScope.WINDOW
    if not isinstance(asked.dead_letter_queue, UnsetType):
        found["dead_letters"] = _grave(asked.dead_letter_queue, queue)
    if old is not None:
        if found.get("is_fifo", old.is_fifo) is not old.is_fifo:
            raise bad_field("fifo is chosen when a queue is created, and stays", "fifo")
        return replace(old, **found)
    if is_dead_letters(queue) and not found.get("dead_letters"):
        # What is in the dead letters has nowhere to go.
        found.setdefault("deliveries_max", 0)
    return QueueSettings(**found)


def _translate(asked: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _put(found, "size_max", asked.queue_size)
    _put(found, "deliveries_max", asked.max_deliveries)
    _put(found, "back_after_deliveries", asked.back_after_deliveries)
    _put(found, "is_fifo", asked.fifo)
    _put(found, "body_bytes_max", asked.message_bytes_max)
    _put(found, "is_paused", asked.paused)
    _put_ms(found, "retention_ms", asked.retention_s)
    _put_ms(found, "delay_ms", asked.delay_s)
    _put_ms(found, "dedup_window_ms", asked.dedup_window_s)
    if not isinstance(asked.visibility_timeout, UnsetType):
        found["lease_ms"] = lease_ms(asked.visibility_timeout)
    if not isinstance(asked.dedup, UnsetType):
        found["dedup_scope"] = DedupScope(asked.dedup)
    if not isinstance(asked.history, UnsetType):
        found["history"] = History(asked.history)
    if not isinstance(asked.tiers, UnsetType):
        _put_tiers(found, asked.tiers)
    if not isinstance(asked.retry, UnsetType):
        _put_ms(found, "backoff_ms_base", asked.retry.base_s)
        _put_ms(found, "backoff_ms_max", asked.retry.cap_s)
        _put(found, "has_jitter", asked.retry.jitter)
    if not isinstance(asked.tenants, UnsetType):
        _put(found, "noisy_percent", asked.tenants.noisy_percent)
        _put(found, "noisy_leased_min", asked.tenants.noisy_in_flight)
        _put(found, "noisy_time_percent", asked.tenants.noisy_time_percent)
    return found


def lease_ms(visibility_timeout: float) -> int:
    return max(_LEASE_MS_MIN, min(LEASE_MS_MAX, milliseconds(visibility_timeout)))


def view_of(settings: QueueSettings, queue: str) -> dict[str, Any]:
    """Return all settings, by the names they have in a `QueueView`."""
    return {
        "queue_size": settings.size_max,
        "visibility_timeout": seconds(settings.lease_ms),
        "max_deliveries": settings.deliveries_max,
        "back_after_deliveries": settings.back_after_deliveries,
        "dead_letter_queue": settings.dead_letters or (None if is_dead_letters(queue) else dead_letters_of(queue)),
        "retention_s": seconds(settings.retention_ms),
        "delay_s": seconds(settings.delay_ms),
        "fifo": settings.is_fifo,
        "dedup": settings.dedup_scope.value,
        "dedup_window_s": seconds(settings.dedup_window_ms),
        "tiers": Tiers(
            mode="strict" if settings.is_strict else "weighted",
            weights=list(settings.weights),
            aging_s=[seconds(ms) for ms in settings.aging_ms],
            reserve_percent=list(settings.reserve_percent),
        ),
        "retry": Retry(
            base_s=seconds(settings.backoff_ms_base),
            cap_s=seconds(settings.backoff_ms_max),
            jitter=settings.has_jitter,
        ),
        "tenants": Tenants(
            noisy_percent=settings.noisy_percent,
            noisy_in_flight=settings.noisy_leased_min,
            noisy_time_percent=settings.noisy_time_percent,
        ),
        "message_bytes_max": settings.body_bytes_max,
        "history": settings.history.value,
        "paused": settings.is_paused,
    }


def whole_weights(weights: list[float]) -> tuple[int, ...]:
    """Return weights in the same ratios as whole numbers, as small as they can be.

    >>> whole_weights([8, 4, 2, 1, 0.5])
    (16, 8, 4, 2, 1)
    """
    parts = [Fraction(weight).limit_denominator(1_000) for weight in weights]
    if not all(parts):
        raise bad_field("a weight below 1/2000 is not told from 0", "tiers.weights")
    scale = lcm(*(part.denominator for part in parts))
    whole = [int(part * scale) for part in parts]
    divisor = gcd(*whole)
    found = tuple(number // divisor for number in whole)
    if max(found) > WEIGHT_MAX:
        raise bad_field(
            f"as whole numbers the weights are {found}; the greatest may be {WEIGHT_MAX}", "tiers.weights", WEIGHT_MAX
        )
    return found


def _grave(dead_letters: str | None, queue: str) -> str:
    """The default name is the same as none, so that a view can be sent back as it is."""
    if dead_letters == queue:
        raise bad_field("a queue cannot be its own dead-letter queue", "dead_letter_queue")
    return "" if dead_letters is None or dead_letters == dead_letters_of(queue) else dead_letters


def _put_tiers(found: dict[str, Any], tiers: Tiers) -> None:
    if tiers.mode is not UNSET:
        found["is_strict"] = tiers.mode == "strict"
    if not isinstance(tiers.weights, UnsetType):
        found["weights"] = whole_weights(tiers.weights)
    if not isinstance(tiers.aging_s, UnsetType):
        found["aging_ms"] = tuple(milliseconds(each) for each in tiers.aging_s)
    if not isinstance(tiers.reserve_percent, UnsetType):
        found["reserve_percent"] = tuple(tiers.reserve_percent)


def _put(found: dict[str, Any], name: str, value: object) -> None:
    if value is not UNSET:
        found[name] = value


def _put_ms(found: dict[str, Any], name: str, value: float | UnsetType) -> None:
    if not isinstance(value, UnsetType):
        found[name] = milliseconds(value)
