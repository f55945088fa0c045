"""Types of names and of durations, as msgspec checks them."""

from typing import Annotated

from msgspec import Meta

from penstock.contract.limits import DURATION_MS_MAX, GROUP_NAME_BYTES_MAX, TOPIC_NAME_CHARACTERS_MAX
from penstock.contract.names import NAME_CHARACTERS_MAX, NAME_OR_ID_PATTERN, NAME_PATTERN, TOPIC_NAME_PATTERN

Seconds = Annotated[float, Meta(ge=0, le=DURATION_MS_MAX // 1_000)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=NAME_PATTERN)]
# A queue that is there, by its name or its id.
NameOrId = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=NAME_OR_ID_PATTERN)]
TopicName = Annotated[str, Meta(min_length=1, max_length=TOPIC_NAME_CHARACTERS_MAX, pattern=TOPIC_NAME_PATTERN)]
GroupName = Annotated[str, Meta(min_length=1, max_length=GROUP_NAME_BYTES_MAX)]
