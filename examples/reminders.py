"""Messages that are received at their time, in the order of their times, whenever they were sent.

Between them nothing is polled: `receive` waits at the server, which answers in the moment a message becomes due.

It prints:

    put the kettle on
    take the tea out
    drink it
    none was early
"""

import asyncio
from datetime import UTC, datetime, timedelta

import penstock
from penstock import Draft

REMINDERS = (("drink it", 0.9), ("put the kettle on", 0.3), ("take the tea out", 0.6))


async def main() -> None:
    async with penstock.connect() as client:
        # What is scheduled must not be too old before it is due: this queue keeps messages for ever.
        await client.create_queue("reminders-tea", retention_s=0)
        tea = client.queue("reminders-tea")

        # In one send, so that all are due after the same moment; `scheduled_at` would say an instant.
        await tea.send_many([Draft(data={"text": text, "due": due}, delay_s=due) for text, due in REMINDERS])

        early = 0
        for _ in range(3):
            message = await tea.receive(wait_s=10)
            assert message is not None
            async with message:
                reminder = message.json()
                print(reminder["text"])
                # Times are kept in whole milliseconds.
                early += datetime.now(UTC) < message.sent_at + timedelta(seconds=reminder["due"] - 0.001)
        print("none was early" if not early else f"{early} were early")
        await tea.delete()


if __name__ == "__main__":
    asyncio.run(main())
