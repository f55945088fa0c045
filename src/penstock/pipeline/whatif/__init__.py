"""What would have been: a queue's own arrivals and handling times, served by the core under other settings.

    simulation.py   one queue, one scenario: the core in virtual time, with workers that take and hand back;
                    waits of what happened and of what would have, by tier
    job.py          the job: arrivals from a history, and the report

Executors run the first: it imports the core, numpy and pyarrow, and no server.
"""
