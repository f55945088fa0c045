"""An SDK of the generation before JSON: botocore itself, told by its own model to speak the query protocol.

The model of today names shapes and members; what they were called in a form
and in XML is added here, from the service's documentation. So requests are written and
answers read by botocore's own code for that protocol, not by ours.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import botocore
import botocore.session
from botocore.config import Config

from tests.sqs.conftest import REGION

MODEL = Path(botocore.__file__).parent / "data" / "sqs" / "2012-11-05" / "service-2.json.gz"
_LISTS = {
    "AttributeNameList": "AttributeName",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "MessageAttributeNameList": "MessageAttributeName",
    "TagKeyList": "TagKey",
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "QueueUrlList": "QueueUrl",
    "MessageList": "Message",
    "StringList": "StringListValue",
    "BinaryList": "BinaryListValue",
}
_MAPS = {
    "QueueAttributeMap": ("Attribute", "Name"),
    "MessageSystemAttributeMap": ("Attribute", "Name"),
    "MessageBodyAttributeMap": ("MessageAttribute", "Name"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name"),
    "TagMap": ("Tag", "Key"),
}


def model() -> dict[str, Any]:
    """Return the service's model as it is installed."""
    found: dict[str, Any] = json.loads(gzip.decompress(MODEL.read_bytes()))
    return found


def _older() -> dict[str, Any]:
    found = model()
    found["metadata"] |= {
        "protocol": "query",
        "protocols": ["query"],
        "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
    }
    del found["metadata"]["awsQueryCompatible"]
    for name, operation in found["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    for name, shape in found["shapes"].items():
        _name_places(name, shape)
    return found


def _name_places(name: str, shape: dict[str, Any]) -> None:
    """Say what a shape, and what is in it, is called in a form and in XML."""
    if shape["type"] == "list":
        shape["flattened"] = True
        shape["member"]["locationName"] = _LISTS.get(name) or shape["member"]["shape"]
    elif shape["type"] == "map":
        shape["key"]["locationName"], shape["value"]["locationName"] = _MAPS[name][1], "Value"
    for member in shape.get("members", {}).values():
        if member["shape"] in _MAPS:
            member["locationName"] = _MAPS[member["shape"]][0]


def older_client(url: str, folder: Path, **more: Any) -> Any:
    """Return a client that speaks the query protocol; its model is written to ``folder``."""
    place = folder / "sqs" / "2012-11-05"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(_older()))
    session = botocore.session.Session()
    session.get_component("data_loader").search_paths.insert(0, str(folder))
    given = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION} | more
    config = Config(retries={"total_max_attempts": 1}, parameter_validation=False)
    return session.create_client("sqs", endpoint_url=url, config=config, **given)
