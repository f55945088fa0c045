"""Tags of a queue: kept and listed, and nothing else."""

from msgspec import structs

from penstock.api.sqs.calling import Call
from penstock.api.sqs.errors import INVALID_PARAMETER_VALUE, Refused, missing
from penstock.api.sqs.kept import Kept, changing, kept_of
from penstock.api.sqs.shapes import ListQueueTagsResult, Nothing, QueueRequest, TagQueueRequest, UntagQueueRequest

TAGS_MAX = 50
KEY_CHARACTERS_MAX = 128
VALUE_CHARACTERS_MAX = 256


def check(tags: dict[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise Refused(INVALID_PARAMETER_VALUE, f"Too many tags: {len(tags)}. A queue has at most {TAGS_MAX}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= KEY_CHARACTERS_MAX or len(value) > VALUE_CHARACTERS_MAX or key.startswith("aws:"):
            raise Refused(
                INVALID_PARAMETER_VALUE,
                f"The tag {key[:KEY_CHARACTERS_MAX]!r} is invalid. A key has 1 to {KEY_CHARACTERS_MAX} characters and "
                f"does not begin with aws:, a value has at most {VALUE_CHARACTERS_MAX}.",
            )


async def tag_queue(call: Call, asked: TagQueueRequest) -> Nothing:
    name = call.name(asked.queue_url)
    if not asked.tags:
        raise missing("Tags")

    def change(kept: Kept) -> Kept:
        tags = kept.tags | asked.tags
        check(tags)
        return structs.replace(kept, tags=tags)

    await call.queues.change(name, changing(change))
    await call.did("queue.change", name, detail=f"tags {', '.join(asked.tags)}")
    return Nothing()


async def untag_queue(call: Call, asked: UntagQueueRequest) -> Nothing:
    name = call.name(asked.queue_url)
    if not asked.tag_keys:
        raise missing("TagKeys")

    def change(kept: Kept) -> Kept:
        tags = {key: value for key, value in kept.tags.items() if key not in asked.tag_keys}
        return structs.replace(kept, tags=tags)

    await call.queues.change(name, changing(change))
    await call.did("queue.change", name, detail=f"without tags {', '.join(asked.tag_keys)}")
    return Nothing()


async def list_queue_tags(call: Call, asked: QueueRequest) -> ListQueueTagsResult:
    return ListQueueTagsResult(kept_of((await call.describe(asked.queue_url)).settings).tags)
