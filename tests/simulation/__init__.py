"""A world in one thread, from one seed: its loop, clock, disk, workers and network.

| file       | stands for                                                    |
|------------|---------------------------------------------------------------|
| loop.py    | the event loop: time jumps, nothing waits, a deadlock is seen |
| clock.py   | wall time and dice                                            |
| pages.py   | one file: what is in the cache and what is on the platter     |
| disk.py    | files and names, with power cuts and every fault of a disk    |
| workers.py | the threads that block on a disk                              |
| network.py | requests that are late, lost, doubled or cut off              |
| world.py   | machines that are killed, lose power and start again          |
"""
