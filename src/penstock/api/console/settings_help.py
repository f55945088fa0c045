"""What the console says of settings, from the tables in `contract/`: meanings, units, bounds and defaults."""

from functools import cache

import msgspec

from penstock.contract.messages import OUTCOMES, PRIORITIES, STATES, WaitReason
from penstock.contract.queue_settings import PARTS, SAID, SETTINGS, Row, Who
from penstock.contract.topic_settings import TOPIC_SETTINGS, TopicSettings, as_said
from penstock.core.queue.explain import SENTENCES
from penstock.wire.problems import CODES
from penstock.wire.queue_settings import SETTING_NAMES


@cache
def settings_help() -> bytes:
    """Return it as JSON; it is the same for as long as the server runs."""
    queue = [{"name": name, **_said(SETTINGS[SAID[name]])} for name in SETTING_NAMES]
    defaults = as_said(TopicSettings())
    topic = [
        {
            "name": setting.said,
            "help": setting.help,
            "unit": "s" if setting.unit == "ms" else setting.unit,
            "least": setting.least / 1_000 if setting.unit == "ms" else setting.least,
            "most": setting.most,
            "default": defaults.get(setting.said),
            "may_be_none": bool(setting.none),
        }
        for setting in TOPIC_SETTINGS.values()
        if setting.said
    ]
    return msgspec.json.encode(
        {
            "queue": queue,
            "parts": PARTS,
            "topic": topic,
            "priorities": PRIORITIES,
            "states": STATES,
            "outcomes": OUTCOMES,
            "wait_reasons": {reason.value: SENTENCES[reason] for reason in WaitReason},
            "remedies": {code.name: code.remedy for code in CODES.values()},
        }
    )


def _said(row: Row) -> dict[str, object]:
    setting = row.setting
    is_time = setting.unit == "ms"
    default = row.as_said(row.default)
    kind = (
        "choice"
        if setting.words
        else "switch"
        if isinstance(row.default, bool)
        else "name"
        if isinstance(row.default, str)
        else "list"
        if isinstance(row.default, tuple)
        else "number"
    )
    return {
        "help": setting.help,
        "kind": kind,
        "unit": "s" if is_time else setting.unit,
        "least": setting.least / 1_000 if is_time else setting.least,
        "most": setting.most / 1_000 if is_time else setting.most,
        "is_whole": not is_time and not setting.is_ratio,
        "words": setting.words,
        "default": default,
        "is_fixed": setting.who is not Who.OWNER,
    }
