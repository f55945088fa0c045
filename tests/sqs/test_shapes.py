"""Our types, our errors and our digests are those of the service's own model."""

from typing import Any

import msgspec
import pytest

from penstock.api.sqs import errors, message_attributes, shapes
from penstock.api.sqs.app import ACTIONS
from penstock.api.sqs.errors import Kind
from penstock.api.sqs.shapes import MessageAttributeValue, Shape, names_of
from tests.sqs.older import model

MODEL = model()
KINDS = {each.shape: each for each in vars(errors).values() if isinstance(each, Kind)}
# AWS's encryption is not ours, and one error is deprecated.
NOT_RAISED = {"InvalidIdFormat"} | {name for name in MODEL["shapes"] if name.startswith("Kms")}


def test_every_action_of_the_model_is_there_with_its_members() -> None:
    assert ACTIONS.keys() == MODEL["operations"].keys()
    for name, operation in MODEL["operations"].items():
        members = MODEL["shapes"][operation["input"]["shape"]]["members"]
        ours = names_of(ACTIONS[name].request).keys()
        # A single message is an entry of a batch that needs no id.
        assert ours - {"Id"} == members.keys() - {"Id"}, name


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(shapes).values() if isinstance(each, type) and each.__name__ in MODEL["shapes"]],
    ids=lambda kind: kind.__name__,
)
def test_every_shape_has_the_members_of_the_model(kind: type[Shape]) -> None:
    assert names_of(kind).keys() - {"Id"} == MODEL["shapes"][kind.__name__]["members"].keys() - {"Id"}


def test_every_error_of_the_model_is_one_of_ours() -> None:
    modelled = {name for name, shape in MODEL["shapes"].items() if shape.get("exception")}
    assert modelled - NOT_RAISED <= KINDS.keys()


@pytest.mark.parametrize(
    ("shape", "code", "status"),
    [
        ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400),
        ("QueueNameExists", "QueueAlreadyExists", 400),
        ("PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", 403),
        ("OverLimit", "OverLimit", 403),
        ("RequestThrottled", "RequestThrottled", 403),
        ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404),
        ("ResourceNotFoundException", "ResourceNotFoundException", 404),
        ("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", 400),
    ],
)
def test_an_error_has_the_code_and_the_status_of_aws(shape: str, code: str, status: int) -> None:
    assert (KINDS[shape].code, KINDS[shape].status) == (code, status)


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        ({"Foo": {"DataType": "String", "StringValue": "Bar"}}, "ae7155c6026991b6d54b11589678bf9c"),
        (
            {
                "attr1": {
                    "DataType": "Binary",
                    "BinaryValue": b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01",
                }
            },
            "8cbe4db156db8a94db8b801b7addb984",
        ),
        ({}, ""),
    ],
)
def test_the_digest_of_attributes_is_the_one_that_aws_answers(attributes: dict[str, Any], digest: str) -> None:
    given = msgspec.convert(attributes, dict[str, MessageAttributeValue])
    assert message_attributes.md5_of_attributes(given) == digest
