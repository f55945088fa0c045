"""What a caller may do, in Kafka's numbers of operations (KIP-430): told to whoever asks for it.

Each operation is a bit. Which of them a role amounts to is the table in the reference,
"Who may do what"; what nobody can do here is said of nobody.
"""

from enum import IntEnum

from penstock.broker.access import Caller, Role


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_OF_TOPICS = {
    Role.SEE: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    Role.FETCH: (Operation.READ,),
    Role.SEND: (Operation.WRITE,),
    Role.ADMIN: (Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS),
}
_OF_GROUPS = {
    Role.READ: (Operation.DESCRIBE,),
    Role.RECEIVE: (Operation.READ,),
    Role.ADMIN: (Operation.DELETE,),
}


def on_topic(caller: Caller, topic: str) -> int:
    return _bits(*(each for role, found in _OF_TOPICS.items() if caller.has(role, topic) for each in found))


def on_group(caller: Caller, group: str) -> int:
    return _bits(*(each for role, found in _OF_GROUPS.items() if caller.has(role, group) for each in found))


def on_cluster(caller: Caller) -> int:
    """Return what a caller may on the cluster: everything only with the role of an admin on every name."""
    found = [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE]
    administered = caller.patterns(Role.ADMIN)
    if administered != ():
        found.append(Operation.CREATE)
    if administered is None:
        found += [Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION]
    return _bits(*found)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)
