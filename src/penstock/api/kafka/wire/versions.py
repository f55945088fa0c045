"""Which requests are taken, in which versions: what ApiVersions says, and the tests go through one by one.

The lowest are the oldest that Kafka 4 itself still takes (KIP-896), a few older where
clients of today still send them, some without asking; the highest are the newest that
are tested. What is not here is not offered: transactions, ACLs and quotas, and whatever
brokers say to each other. Of the newer groups (KIP-848, KIP-932) the heartbeats are
offered, only so that they can be refused in words.
"""

from enum import IntEnum
from typing import NamedTuple


class Api(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76


class Offer(NamedTuple):
    """The versions of one request that are taken, and from which on it is flexible."""

    least: int
    most: int
    flexible_from: int


_NEVER = 1_000

OFFERED: dict[int, Offer] = {
    Api.PRODUCE: Offer(3, 12, 9),
    Api.FETCH: Offer(4, 17, 12),
    Api.LIST_OFFSETS: Offer(1, 8, 6),
    Api.METADATA: Offer(0, 13, 9),
    Api.OFFSET_COMMIT: Offer(0, 9, 8),
    Api.OFFSET_FETCH: Offer(1, 9, 6),
    Api.FIND_COORDINATOR: Offer(0, 5, 3),
    Api.JOIN_GROUP: Offer(0, 9, 6),
    Api.HEARTBEAT: Offer(0, 4, 4),
    Api.LEAVE_GROUP: Offer(0, 5, 4),
    Api.SYNC_GROUP: Offer(0, 5, 4),
    Api.DESCRIBE_GROUPS: Offer(0, 6, 5),
    Api.LIST_GROUPS: Offer(0, 5, 3),
    Api.SASL_HANDSHAKE: Offer(1, 1, _NEVER),
    Api.API_VERSIONS: Offer(0, 4, 3),
    Api.CREATE_TOPICS: Offer(0, 7, 5),
    Api.DELETE_TOPICS: Offer(0, 6, 4),
    Api.DELETE_RECORDS: Offer(0, 2, 2),
    Api.INIT_PRODUCER_ID: Offer(0, 5, 2),
    Api.OFFSET_FOR_LEADER_EPOCH: Offer(2, 4, 4),
    Api.DESCRIBE_CONFIGS: Offer(1, 4, 4),
    Api.ALTER_CONFIGS: Offer(0, 2, 2),
    Api.DESCRIBE_LOG_DIRS: Offer(1, 4, 2),
    Api.SASL_AUTHENTICATE: Offer(0, 2, 2),
    Api.CREATE_PARTITIONS: Offer(0, 3, 2),
    Api.DELETE_GROUPS: Offer(0, 2, 2),
    Api.ELECT_LEADERS: Offer(0, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: Offer(0, 1, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: Offer(0, 0, 0),
    Api.OFFSET_DELETE: Offer(0, 0, _NEVER),
    Api.DESCRIBE_QUORUM: Offer(0, 2, 0),
    Api.DESCRIBE_CLUSTER: Offer(0, 2, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: Offer(0, 1, 0),
    Api.DESCRIBE_TOPIC_PARTITIONS: Offer(0, 0, 0),
    Api.SHARE_GROUP_HEARTBEAT: Offer(1, 1, 0),
}


def is_offered(key: int, version: int) -> bool:
    offer = OFFERED.get(key)
    return offer is not None and offer.least <= version <= offer.most


def is_flexible(key: int, version: int) -> bool:
    return version >= OFFERED[key].flexible_from
