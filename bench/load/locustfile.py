"""What each user does, over and over, without a pause. An answer that is not as it should be is a failure."""

import random

from locust import HttpUser, constant, task

QUEUES = [f"load-{number}" for number in range(15)]


class Worker(HttpUser):
    # None: a user is as quick as the server.
    wait_time = constant(0)

    def on_start(self) -> None:
        """Make the queues; a repeat changes nothing."""
        for queue in QUEUES:
            self.client.post("/api/queues", json={"queue_name": queue}, name="make a queue")

    @task
    def enqueue_dequeue_ack(self) -> None:
        path = f"/api/queues/{random.choice(QUEUES)}"
        self.client.post(f"{path}/messages", json={"data": {"order": 7, "note": "x" * 200}}, name="enqueue")
        with self.client.get(f"{path}/messages", name="dequeue", catch_response=True) as answer:
            # Each user has sent one to this queue and takes one, so it is never empty.
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}")
                return
            receipt = answer.json()["receipt"]
        with self.client.post(f"{path}/ack", json={"receipts": [receipt]}, name="ack", catch_response=True) as answer:
            if answer.status_code != 200 or answer.json()["done"] != 1:
                answer.failure(f"status {answer.status_code}: {answer.text[:200]}")
