"""A Celery application whose broker is a server of ours: what a real one has, tasks, retries and ETAs.

    python -m celery -A tests.sqs.celery_app worker      with BROKER and DONE in the environment

Tasks write what they did, one line each, into the file that DONE names.
"""

import os
from pathlib import Path
from typing import Any

from celery import Celery, Task
from kombu.transport.SQS import Transport

# Celery's own loop would read through pycurl, which needs a compiler where there is no wheel. Without it a worker reads
# through boto3, one request at a time: the same calls.
Transport.implements = Transport.implements.extend(asynchronous=False)

app = Celery("tests", broker=os.environ.get("BROKER", "sqs://"), set_as_current=False)
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "visibility_timeout": 30,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    },
    task_default_queue="celery",
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


def note(text: str) -> None:
    with Path(os.environ["DONE"]).open("a") as done:
        done.write(f"{text}\n")


@app.task(name="add")  # type: ignore[untyped-decorator]
def add(one: int, other: int) -> None:
    note(f"{one} + {other} = {one + other}")


@app.task(name="fail_twice", bind=True, max_retries=3, default_retry_delay=0.1)  # type: ignore[untyped-decorator]
def fail_twice(self: "Task[Any, Any]") -> None:
    note(f"attempt {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry()
