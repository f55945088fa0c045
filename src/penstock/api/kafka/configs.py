"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: Kafka's words for how a topic behaves.

Every setting that means something here is listed, changed or not, with its default.
Those that Kafka has and that promise what is not to be had here are listed as what they
amount to, and cannot be set to anything else: a topic that says it does what it does
not is worse than a refusal. Those that are about files of Kafka's promise nothing, and
are taken whatever they are.

What was set is said again as it was set, to the letter, and as set, also if it is the
default: tools that compare a topic with a file would see a difference for ever. So the
words are remembered with the topic (`TopicSettings.remarks`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from penstock.api.kafka.errors import REFUSALS, BadConfig, BadRequest, code_of
from penstock.api.kafka.request import Request, Values, in_turns, once_each
from penstock.broker.access import Role
from penstock.contract.topic_settings import (
    KAFKA_NO_BOUND,
    TOPIC_SETTINGS,
    TopicSetting,
    TopicSettings,
    policies_of,
    read_policies,
)

_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
_TOPIC, _BROKER = 2, 4
_OF_TOPIC, _BY_DEFAULT, _OF_BROKER = 1, 5, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_DEFAULTS = TopicSettings()


class Config(NamedTuple):
    """One setting: how Kafka says it, and which of ours it is."""

    kind: int
    said: Callable[[TopicSettings], str]
    meant: Callable[[str], Mapping[str, Any]]


def _config(name: str, setting: TopicSetting) -> Config:
    kind = _STRING if setting.words else _INT if setting.most < 2**31 else _LONG
    return Config(
        _DOUBLE if setting.unit == "percent" else kind,
        lambda topic: _text_of(setting, getattr(topic, name)),
        lambda text: {name: _value_of(name, setting, text.strip())},
    )


def _text_of(setting: TopicSetting, value: Any) -> str:
    if value is None:
        return setting.none
    if setting.words:
        return str(setting.words[value])
    return str(value / 100 if setting.unit == "percent" else value)


def _value_of(name: str, setting: TopicSetting, text: str) -> Any:
    if setting.none and text in (setting.none, KAFKA_NO_BOUND):
        return None
    if setting.words:
        if text not in setting.words:
            *words, last = (setting.none, *setting.words) if setting.none else setting.words
            raise ValueError(f"it must be {', '.join(words)} or {last}")
        number = setting.words.index(text)
        return bool(number) if isinstance(getattr(_DEFAULTS, name), bool) else number
    return round(float(text) * 100) if setting.unit == "percent" else int(text)


CONFIGS: dict[str, Config] = {
    setting.kafka: _config(name, setting) for name, setting in TOPIC_SETTINGS.items() if setting.kafka
}
CONFIGS["cleanup.policy"] = Config(_LIST, policies_of, read_policies)
CONFIGS = dict(sorted(CONFIGS.items()))
# What cannot be chosen here, and what it amounts to.
FIXED: dict[str, tuple[int, str]] = {
    "message.timestamp.before.max.ms": (_LONG, str(2**63 - 1)),
    "min.insync.replicas": (_INT, "1"),
    "remote.storage.enable": (_BOOLEAN, "false"),
}
# Settings without effect here, taken with any value: every record is on the disk before it is answered, there is one
# replica, and files are not Kafka's.
MOOT: dict[str, tuple[int, str]] = {
    "file.delete.delay.ms": (_LONG, "60000"),
    "flush.messages": (_LONG, "1"),
    "flush.ms": (_LONG, "0"),
    "index.interval.bytes": (_INT, "4096"),
    "preallocate": (_BOOLEAN, "false"),
    "segment.index.bytes": (_INT, "10485760"),
    "segment.jitter.ms": (_LONG, "0"),
    "unclean.leader.election.enable": (_BOOLEAN, "false"),
}


_REMARK_CHARACTERS_MAX = 100
KNOWN = {*CONFIGS, *FIXED, *MOOT}


def settings_of(said: Mapping[str, str | None], start: TopicSettings, *, unsaid: Collection[str] = ()) -> TopicSettings:
    """Return settings with what is said changed, and without the words for what is ``unsaid``.

    Raises `BadConfig` that names what is wrong.
    """
    changes: dict[str, Any] = {}
    remarks = dict(start.remarks)
    for name, text in said.items():
        changes |= _meant(name, text)
        remarks[name] = (text or "").strip()
        if len(remarks[name]) > _REMARK_CHARACTERS_MAX:
            raise BadConfig(f"{name} has {len(remarks[name])} characters; it may have {_REMARK_CHARACTERS_MAX}")
    # What another version remembered, and this one does not know, goes with the next change.
    known = {name: text for name, text in remarks.items() if name in KNOWN and name not in unsaid}
    changes["remarks"] = tuple(sorted(known.items()))
    try:
        return replace(start, **changes)
    except ValueError as error:
        raise BadConfig(str(error)) from error


def _check_moot(name: str, text: str | None) -> None:
    kind = MOOT[name][0]
    is_fit = text in ("true", "false") if kind == _BOOLEAN else text is not None and text.isdecimal() and len(text) < 20
    if not is_fit:
        wanted = "true or false" if kind == _BOOLEAN else "a whole number"
        raise BadConfig(f"{name} is {(text or '')[:100]!r}; it must be {wanted}")


def _meant(name: str, text: str | None) -> Mapping[str, Any]:
    if name in MOOT:
        _check_moot(name, text)
        return {}
    if name in FIXED:
        if text != FIXED[name][1]:
            raise BadConfig(f"{name} is {FIXED[name][1]} here, and cannot be changed")
        return {}
    config = CONFIGS.get(name)
    if config is None or text is None:
        raise BadConfig(f"{name} is no setting of a topic here; there are {', '.join(CONFIGS)}")
    try:
        return config.meant(text)
    except (ValueError, OverflowError) as error:
        raise BadConfig(f"{name} is {text[:100]!r}: {error}") from error


def described(settings: TopicSettings, defaults: TopicSettings) -> list[Values]:
    """Return every setting of a topic, as CreateTopics and DescribeConfigs say it."""
    remarks = dict(settings.remarks)
    rows = []
    for name, config in CONFIGS.items():
        value, text = config.said(settings), remarks.get(name)
        # Changed over REST meanwhile, it is not what was said any more.
        is_as_said = False
        if text is not None:
            is_as_said = all(getattr(settings, field) == meant for field, meant in config.meant(text).items())
            value = text if is_as_said else value
        rows.append(_row(name, config.kind, value, config.said(defaults), is_set=is_as_said))
    for names, is_fixed in ((MOOT, False), (FIXED, True)):
        for name, (kind, value) in names.items():
            said = remarks.get(name)
            rows.append(_row(name, kind, said or value, value, is_set=said is not None, is_fixed=is_fixed))
    return rows


def _row(name: str, kind: int, value: str, default: str, *, is_set: bool = False, is_fixed: bool = False) -> Values:
    is_set = is_set or value != default
    source = _OF_TOPIC if is_set else _BY_DEFAULT
    synonym = {"name": name, "value": default, "source": _BY_DEFAULT}
    return {
        "name": name,
        "value": value,
        "read_only": is_fixed,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": value, "source": source}, synonym] if is_set else [synonym],
        "config_type": kind,
        "documentation": None,
    }


async def describe_configs(request: Request) -> Values:
    described = await in_turns(request.body.resources, lambda each: _described_resource(request, each))
    return {"throttle_time": 0, "results": described}


def _described_resource(request: Request, resource: SimpleNamespace) -> Values:
    kind, name = resource.resource_type, resource.resource_name
    error, message, rows = 0, None, []
    try:
        rows = _rows_of(request, kind, name)
    except REFUSALS as problem:
        error, message = code_of(problem), str(problem)
    wanted = resource.configuration_keys
    if not request.body.include_synonyms:
        rows = [{**row, "synonyms": []} for row in rows]
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": kind,
        "resource_name": name,
        # No names at all are all of them, as for Kafka.
        "configs": [row for row in rows if not wanted or row["name"] in wanted],
    }


def _rows_of(request: Request, kind: int, name: str) -> list[Values]:
    service = request.service
    if kind == _TOPIC:
        request.check_topic(Role.SEE, name)
        return described(service.topics.streams.find(name).settings, service.topic_defaults)
    if kind == _BROKER and name in ("", str(request.node_id)):
        return _of_broker(request)
    raise BadRequest(f"there is nothing to be configured of kind {kind} and name {name!r}")


def _of_broker(request: Request) -> list[Values]:
    service = request.service
    defaults = service.topic_defaults
    values = {
        "auto.create.topics.enable": (_BOOLEAN, str(service.has_auto_create).lower()),
        "default.replication.factor": (_INT, "1"),
        "log.cleanup.policy": (_LIST, CONFIGS["cleanup.policy"].said(defaults)),
        "log.retention.bytes": (_LONG, CONFIGS["retention.bytes"].said(defaults)),
        "log.retention.ms": (_LONG, CONFIGS["retention.ms"].said(defaults)),
        "log.segment.bytes": (_INT, str(defaults.segment_bytes)),
        "message.max.bytes": (_INT, str(defaults.message_bytes_max)),
        "min.insync.replicas": (_INT, "1"),
        "num.partitions": (_INT, str(defaults.partitions)),
    }
    rows = [_row(name, kind, value, value, is_fixed=True) for name, (kind, value) in values.items()]
    return [{**row, "config_source": _OF_BROKER} for row in rows]


async def alter_configs(request: Request) -> Values:
    """Replace all settings of a topic: one that is not named gets its default."""

    def change(resource: SimpleNamespace, _settings: TopicSettings, defaults: TopicSettings) -> TopicSettings:
        return settings_of({each.name: each.value for each in resource.configs}, defaults)

    return await _altered(request, change)


async def incremental_alter_configs(request: Request) -> Values:
    def change(resource: SimpleNamespace, settings: TopicSettings, defaults: TopicSettings) -> TopicSettings:
        for each in resource.configs:
            unsaid = (each.name,) if each.config_operation == _DELETE else ()
            settings = settings_of({each.name: _operated(each, settings, defaults)}, settings, unsaid=unsaid)
        return settings

    return await _altered(request, change)


def _operated(change: SimpleNamespace, settings: TopicSettings, defaults: TopicSettings) -> str | None:
    """Return the value that a setting has after an operation on it."""
    name, operation = change.name, change.config_operation
    text: str | None = change.value
    if operation == _SET or name not in CONFIGS:
        return {**FIXED, **MOOT}.get(name, (0, text))[1] if operation == _DELETE else text
    if operation == _DELETE:
        return CONFIGS[name].said(defaults)
    if operation not in (_APPEND, _SUBTRACT) or CONFIGS[name].kind != _LIST or text is None:
        raise BadConfig(f"{name} is no list that something could be added to or taken from")
    said = [each for each in CONFIGS[name].said(settings).split(",") if each not in text.split(",")]
    return ",".join([*said, text] if operation == _APPEND else said)


Change = Callable[[SimpleNamespace, TopicSettings, TopicSettings], TopicSettings]


async def _altered(request: Request, change: Change) -> Values:
    asked = once_each(request.body.resources, lambda each: (each.resource_type, each.resource_name))
    return {"throttle_time": 0, "responses": [await _alter(request, *key, each, change) for key, each in asked.items()]}


async def _alter(request: Request, kind: int, name: str, resource: SimpleNamespace | None, change: Change) -> Values:
    error, message = 0, None
    try:
        if resource is None:
            raise BadRequest(f"{name} is there twice")
        if kind != _TOPIC:
            raise BadRequest("only topics are configured this way; the server has its settings in a file")
        changed = _changed(request, name, resource, change)
        if not request.body.validate_only:
            await request.service.topics.streams.change(name, changed)
            said = ", ".join(f"{each.name}={each.value}" for each in resource.configs)
            await request.did("topic.change", name, detail=said)
    except REFUSALS as problem:
        error, message = code_of(problem), str(problem)
    return {"error_code": error, "error_message": message, "resource_type": kind, "resource_name": name}


def _changed(request: Request, name: str, resource: SimpleNamespace, change: Change) -> TopicSettings:
    request.check_topic(Role.ADMIN, name)
    if None in once_each(resource.configs, lambda each: each.name).values():
        raise BadRequest("a setting is there twice")
    settings = request.service.topics.streams.find(name).settings
    # The number of partitions is no setting for Kafka, and stays what it is.
    return change(resource, settings, replace(request.service.topic_defaults, partitions=settings.partitions))
