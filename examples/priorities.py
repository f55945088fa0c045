"""How messages of different urgency share a queue, and how to put one ahead.

CRITICAL has eight times the weight of LOW, so of nine messages eight are CRITICAL while
both have some. None waits for ever. When the urgent ones are done, the rest is served.

It prints:

    of the first 9: 8 CRITICAL, 1 LOW
    of the next 9: 8 CRITICAL, 1 LOW
    of the last 6: 0 CRITICAL, 6 LOW
    after the call of the customer: invoice 19
"""

import penstock
from penstock import Draft


def main() -> None:
    with penstock.connect() as client:
        client.create_queue("priorities-mails")
        mails = client.queue("priorities-mails")
        mails.send_many([Draft(data=f"newsletter {number}", priority="LOW") for number in range(8)])
        mails.send_many([Draft(data=f"alarm {number}", priority="CRITICAL") for number in range(16)])

        for which, limit in (("first", 9), ("next", 9), ("last", 6)):
            batch = mails.receive(limit=limit)
            names = [message.priority for message in batch]
            print(f"of the {which} {limit}: {names.count('CRITICAL')} CRITICAL, {names.count('LOW')} LOW")
            batch.ack()

        ids = mails.send_many([f"invoice {number}" for number in range(20)])
        mails.escalate([ids[19]], priority="HIGH", actor="anna", reason="the customer is on the phone")
        message = mails.receive()
        assert message is not None
        with message:
            print("after the call of the customer:", message.text)
        mails.delete()


if __name__ == "__main__":
    main()
