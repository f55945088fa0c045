"""What would have been: a queue's own arrivals and handling times, served by the core's scheduler under other settings.

    scenarios.py    what is changed, as it is typed and as it travels to executors
    simulation.py   one queue, one scenario: the core in virtual time, with workers that take and hand back
    comparing.py    waits of what happened and of what would have, by tier

Executors run these: they import the core, numpy and pyarrow, and nothing of a server.
"""
