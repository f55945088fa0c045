"""What the archive job asks a server: which queues there are and how they are set, and to drop what is archived.

Few calls, from the driver: a queue at a time is quick enough.
"""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from penstock.contract.queue_settings import SAID_NAMES
from penstock.pipeline.http import TRIES_BY_HAND, Asking, ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed

PAGE = 1_000


class Server:
    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._key = key

    def queues(self) -> dict[str, dict[str, Any]]:
        """Return each queue by name: its id and its settings, in the words of REST."""
        return {name: self._queue(name) for name in self._names()}

    def trim(self, shard: int, *, before: int) -> int:
        """Let the server drop its history before an offset, in whole segments; return the first offset it keeps."""
        answer = self._told(lambda asking: asking.post("/api/history/trim", {"shard": shard, "before": before}))
        return int(answer["first_kept_offset"])

    def _names(self) -> Iterator[str]:
        cursor: str | None = ""
        while cursor is not None:
            page = self._ask("/api/queues", limit=PAGE, cursor=cursor)
            yield from (each["queue_name"] for each in page["queues"])
            cursor = page["next"]

    def _queue(self, name: str) -> dict[str, Any]:
        said = self._ask(f"/api/queues/{quote(name, safe='')}")
        return {"queue_id": said["queue_id"], "settings": {each: said[each] for each in SAID_NAMES if each in said}}

    def _ask(self, path: str, **query: object) -> Any:
        return self._told(lambda asking: asking.json(path, **query))

    def _told(self, question: Callable[[Asking], Any]) -> Any:
        try:
            with Asking(self._url, self._key, tries_max=TRIES_BY_HAND) as asking:
                return question(asking)
        except (ServerRefused, ServerUnreachable) as error:
            raise JobFailed(str(error)) from error
