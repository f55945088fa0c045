"""`make race`: Penstock beside the queues that teams use instead, on the reader's machine.

    driver ──starts──► the servers, all of them, each in a folder of its own
       │
       └──for each workload, round and side, one after the other──► one client process each way

Every side runs once in a round, and another one goes first in the next. All servers run all the while, idle while it is
another's turn; each measurement has a queue of its own. A client process opens its connections, warms up, and counts
what is done between two instants that it is told. What other processes of the machine spent meanwhile is recorded, too.

`docs/how-to/race-the-peers.md` says how to run it and how to read it.
"""
