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

| file            | what is lived in it                                          |
|-----------------|--------------------------------------------------------------|
| log_life.py     | random lives of one log, compared with plain memory          |
| log_crashes.py  | a crash at each step, and another at each step of recovery   |
| store_crashes.py| a crash at each step of append, snapshot, copy and drop      |
| store_life.py   | random lives of the embedded store; `store_books.py` judges  |
|                 | every answer by what the clients were told before            |
| mutants.py      | rules broken one at a time, each of which must be noticed;   |
|                 | `log_mutants.py` and `store_mutants.py` have the others      |
"""
