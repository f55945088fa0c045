"""`penstock watch`: alerts without Prometheus, on the terminal and to a webhook.

    look ──▶ /metrics of each server ──▶ `alerts.py` ──▶ a line for what fires or ends
                                                    └──▶ the webhook, in a thread of its own

The webhook cannot hold up the looks: what is to be told waits in a queue of `TOLD_MAX`, is tried `TRIES` times, and is
dropped with a remark after that.
"""

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from penstock.cli.alerts import METRICS, UP, Alert, Alerts, Samples
from penstock.cli.config import Config, Json, KeyText, Url, loaded
from penstock.cli.key import span_ms
from penstock.cli.output import ExitCode, print_json, refuse, remark, say
from penstock.client.failover import addresses_of
from penstock.client.http import Address
from penstock.settings import ClientSettings

# Looks at a server, and words with a webhook, that take longer have failed.
ANSWER_S = 10.0
TRIES = 5
PAUSE_S = 1.0
# What waits to be told; above that the oldest is dropped.
TOLD_MAX = 100
METRICS_BYTES_MAX = 256 << 20
_OF_PROCESS = ("process_open_fds", "process_max_fds")


def watch(
    *,
    interval: Annotated[str, typer.Option(help="The time between two looks.")] = "15s",
    webhook: Annotated[
        str | None, typer.Option(help="Post what fires and what ends to this URL, as Alertmanager does.", metavar="URL")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Look twice, tell what is wrong at this moment, and end.")
    ] = False,
    url: Url = None,
    key: KeyText = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Watch servers, and tell of what needs a person, until Ctrl-C.

    The conditions are those of the alerts for Prometheus, except the ones about probes. With
    several servers in --url each is watched. A server with keys needs a key with the role
    metrics. --once exits with 1 if anything is wrong, and waits for nothing to last.

    [bold]Examples:[/]

    penstock watch
    penstock watch --webhook http://127.0.0.1:9000/alerts
    penstock watch --once --json
    """
    settings = loaded(ClientSettings, {"url": url, "key": key}, config).settings
    if not settings.url.startswith(("http://", "https://")):
        refuse(f"url is {settings.url!r}; only a server has metrics: http://host:port", ExitCode.BAD_SETTINGS)
    if webhook is not None and not webhook.startswith(("http://", "https://")):
        refuse(f"--webhook is {webhook!r}; it must be an http:// or https:// address")
    interval_s = span_ms("--interval", interval) / 1_000
    servers = Servers(addresses_of(settings.url), settings.key)
    alerts, told = Alerts(waits=not once), Webhook(webhook)
    try:
        while True:
            _tell(alerts.look(time.time(), servers.look()), told, as_json=as_json)
            if once and servers.looks == 2:
                break
            time.sleep(min(interval_s, PAUSE_S) if once else interval_s)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        told.close()
    if alerts.firing():
        raise typer.Exit(ExitCode.NOTHING)
    if not as_json:
        say("Nothing is wrong.")


def _tell(changed: list[Alert], webhook: "Webhook", *, as_json: bool) -> None:
    for alert in changed:
        said = alert.as_alertmanager()
        if as_json:
            print_json(said)
        else:
            ended = "" if alert.ended_s is None else "ended: "
            say(f"{time.strftime('%H:%M:%S')} {alert.rule.severity:8} {alert.rule.name}: {ended}{alert.summary}")
    if changed:
        webhook.tell([alert.as_alertmanager() for alert in changed])


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Servers:
    """The servers that are watched, and how many looks there were."""

    def __init__(self, addresses: Iterable[Address], key: str) -> None:
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._urls = {
            each.authority: f"{'https' if each.is_secure else 'http'}://{each.authority}{each.prefix}/metrics"
            for each in addresses
        }
        # A key is not handed on to where a redirect leads.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open
        self.looks = 0

    def look(self) -> Samples:
        """Return the samples of all servers; of one that does not answer, that it does not."""
        self.looks += 1
        found: dict[str, list[tuple[Mapping[str, str], float]]] = {UP: []}
        for instance, url in self._urls.items():
            text = self._text(url)
            found[UP].append(({"instance": instance}, 0.0 if text is None else 1.0))
            for name, labels, value in () if text is None else parsed(text):
                found.setdefault(name, []).append(({**labels, "instance": instance}, value))
        return found

    def _text(self, url: str) -> str | None:
        request = urllib.request.Request(url, headers=self._headers)
        try:
            with self._open(request, timeout=ANSWER_S) as answer:
                return str(answer.read(METRICS_BYTES_MAX).decode())
        except urllib.error.HTTPError as error:
            if error.code in {401, 403}:
                remark(f"{url} answers {error.code}: it needs a key with the role metrics on all queues.")
                raise typer.Exit(ExitCode.NOT_ALLOWED) from None
            return None
        except (OSError, ValueError):
            return None


def parsed(text: str) -> Iterable[tuple[str, Mapping[str, str], float]]:
    """Yield the samples that any rule asks for. All others, which are most of a large page, are not parsed."""
    from prometheus_client.parser import text_string_to_metric_families

    names = (*(metric.name for metric in METRICS), *_OF_PROCESS)
    kept = [line for line in text.splitlines() if line.startswith(names)]
    for family in text_string_to_metric_families("\n".join(kept) + "\n"):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


class Webhook:
    """Posts to a URL in a thread of its own; without one it does nothing."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(TOLD_MAX)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._post_all, name="webhook", daemon=True)
        if url is not None:
            self._thread.start()

    def tell(self, alerts: list[dict[str, object]]) -> None:
        if self._url is None:
            return
        is_firing = any(alert["status"] == "firing" for alert in alerts)
        body = {"version": "4", "status": "firing" if is_firing else "resolved", "alerts": alerts}
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            remark(f"The webhook is {TOLD_MAX} messages behind, so this is not told to it.")

    def close(self) -> None:
        """Let it tell what waits, as long as that works at the first try."""
        if self._url is None:
            return
        self._is_closing.set()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(2 * ANSWER_S)

    def _post_all(self) -> None:
        while (body := self._waiting.get()) is not None:
            self._post(json.dumps(body).encode())

    def _post(self, body: bytes) -> None:
        assert self._url is not None
        for tries in range(TRIES):
            request = urllib.request.Request(self._url, body, {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_S):
                    return
            except (OSError, ValueError) as error:
                failed = error
            if tries + 1 == TRIES or self._is_closing.wait(PAUSE_S * 2**tries):
                break
        remark(f"The webhook does not take what it is told: {failed}")
