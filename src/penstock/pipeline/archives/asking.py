"""What the archive job asks a server: which queues there are and how they are set, and to drop what is archived.

Few calls, from the driver, over the standard library's HTTP: a queue at a time is quick enough.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from penstock.pipeline.outcome import JobFailed

TIMEOUT_S = 60.0
PAGE = 1_000
# Of the description of a queue: what is in it now is no setting.
_SETTINGS = (
    *("queue_size", "visibility_timeout", "max_deliveries", "dead_letter_queue", "retention_s", "delay_s", "fifo"),
    *("dedup", "dedup_window_s", "tiers", "retry", "message_bytes_max", "history", "paused"),
)


class Server:
    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def queues(self) -> dict[str, dict[str, Any]]:
        """Return each queue by name: its id and its settings, in the words of REST."""
        return {name: self._queue(name) for name in self._names()}

    def trim(self, shard: int, *, before: int) -> int:
        """Let the server drop its history before an offset, in whole segments; return the first offset it keeps."""
        answer = self._ask("POST", "/api/history/trim", {"shard": shard, "before": before})
        return int(answer["first_kept_offset"])

    def _names(self) -> Iterator[str]:
        cursor: str | None = ""
        while cursor is not None:
            page = self._ask("GET", "/api/queues?" + urlencode({"limit": PAGE, "cursor": cursor}))
            yield from (each["queue_name"] for each in page["queues"])
            cursor = page["next"]

    def _queue(self, name: str) -> dict[str, Any]:
        said = self._ask("GET", f"/api/queues/{quote(name, safe='')}")
        return {"queue_id": said["queue_id"], "settings": {each: said[each] for each in _SETTINGS if each in said}}

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        where = urlsplit(self._url)
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        connection = kind(where.hostname or "", where.port, timeout=TIMEOUT_S)
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if content is None else {"content-type": "application/json"})
        try:
            connection.request(method, where.path + path, content, headers)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise JobFailed(f"no server answers at {self._url}: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise JobFailed(f"{self._url} refuses {method} {path.partition('?')[0]}: {_detail(said, answer.status)}")
        return json.loads(said)


def _detail(said: bytes, status: int) -> str:
    try:
        return f"{json.loads(said)['detail']} ({status})"
    except (ValueError, KeyError, TypeError):
        return f"status {status}"
