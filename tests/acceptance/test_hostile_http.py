"""Hostile input, on raw sockets, to a real server: it is refused, and others notice nothing."""

import gzip
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock.listening.http_exchange import USUAL
from tests.acceptance.http_server import RunningServer, running_server
from tests.acceptance.raw_http import RawAnswer, ask, connect, read_answer, request

QUEUE = "/api/queues/orders"
MESSAGES = QUEUE + "/messages"
MSGPACK = "application/msgpack"
BODY = b'{"data":"x"}'
HEAD = f"POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()

pack = msgspec.msgpack.encode


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    # A mistake of ours would be noted as an error, and fail the last test of this file.
    with running_server(tmp_path_factory.mktemp("hostile"), may_note="WARNING") as running:
        yield running


@pytest.fixture
def server(shared: RunningServer) -> Iterator[RunningServer]:
    """A server with an empty queue, which serves others as before when the test is over."""
    assert ask(shared.port, request("POST", "/api/queues", b'{"queue_name":"orders"}')).status in {200, 201}
    assert ask(shared.port, request("POST", QUEUE + "/purge")).status == 200
    yield shared
    assert ask(shared.port, request("POST", "/api/queues", b'{"queue_name":"others"}')).status in {200, 201}
    sent = ask(shared.port, request("POST", "/api/queues/others/messages", BODY))
    received = ask(shared.port, request("GET", "/api/queues/others/messages"))
    assert received.json["message_id"] == sent.json["message_id"]
    ask(shared.port, request("POST", "/api/queues/others/purge"))


def send(server: RunningServer, body: bytes, **headers: str) -> RawAnswer:
    return ask(server.port, request("POST", MESSAGES, body, **headers))


def count(server: RunningServer) -> int:
    found: int = ask(server.port, request("GET", QUEUE)).json["current_message_count"]
    return found


BAD_JSON = {
    "100,000 brackets": b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 brackets that stay open": b'{"data":' + b"[" * 100_000,
    "100,000 objects in each other": b'{"data":' + b'{"a":' * 100_000,
    "a NUL": b'{"data":"\x00"}',
    "bytes that are not UTF-8": b'{"data":"\xff\xfe"}',
    "a surrogate as UTF-8": b'{"data":"\xed\xa0\x80"}',
    "a lone surrogate": b'{"data":"\\ud800"}',
    "a pair of surrogates in the wrong order": b'{"data":"\\udc00\\ud800"}',
    "a lone surrogate in a key": b'{"data":{"\\ud800":1}}',
    "a lone surrogate in a group": b'{"data":"x","group":"\\ud800"}',
    "a number too large to be one": b'{"data":1e400}',
    "not a number": b'{"data":NaN}',
    "infinity": b'{"data":"x","delay_s":Infinity}',
    "a delay of 10**30": b'{"data":"x","delay_s":1' + b"0" * 30 + b"}",
    "a time of 10**400": b'{"data":"x","scheduled_at":1' + b"0" * 400 + b"}",
    "a time before all times": b'{"data":"x","scheduled_at":"0001-01-01T00:00:00+23:59"}',
    "a number of 5,000 digits": b'{"data":1' + b"0" * 5_000 + b"}",
    "a list": b"[]",
    "two values": b'{"data":"x"}{"data":"y"}',
    "nothing": b"",
    "only a quote": b'"',
}


@pytest.mark.parametrize("body", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_json_that_is_no_message_is_refused(server: RunningServer, body: bytes) -> None:
    assert send(server, body).code in {"bad_request", "bad_field"}
    assert count(server) == 0


BAD_MSGPACK = {
    "100,000 lists in each other": b"\x81\xa4data" + b"\x91" * 100_000 + b"\xc0",
    "a list that says it has 2**32 rows": b"\x81\xa4data\xdd\xff\xff\xff\xff",
    "bytes that say they are 2**32": b"\x81\xa4data\xc6\xff\xff\xff\xff",
    "text that is not UTF-8": b"\x81\xa4data\xa2\xff\xfe",
    "a type of somebody else": pack({"data": msgspec.msgpack.Ext(5, b"x")}),
    "a list as a key": b"\x81\xa4data\x81\x91\x01\x02",
    "not a number": pack({"data": float("nan")}),
    "infinity, somewhere inside": pack({"data": [{"a": [None, float("inf")]}]}),
    "an attribute that is not a number": pack({"data": "x", "attributes": {"a": float("nan")}}),
    "a delay that is not a number": pack({"data": "x", "delay_s": float("nan")}),
    "a time that is not a number": pack({"data": "x", "scheduled_at": float("nan")}),
}


@pytest.mark.parametrize("body", BAD_MSGPACK.values(), ids=BAD_MSGPACK.keys())
def test_message_pack_that_json_could_not_say_is_refused(server: RunningServer, body: bytes) -> None:
    assert send(server, body, content_type=MSGPACK).code in {"bad_request", "bad_field"}
    assert count(server) == 0


ODD_BUT_GOOD: dict[str, tuple[bytes, Any]] = {
    "an escaped NUL": (b'{"data":"a\\u0000b"}', "a\x00b"),
    "a number of 30 digits": (b'{"data":1' + b"0" * 30 + b"}", 10**30),
    "a key that is there twice, of which the last counts": (b'{"data":"first","data":"last"}', "last"),
    "a pair of surrogates": (b'{"data":"\\ud83d\\ude00"}', "😀"),
    "a mark of byte order inside": ('{"data":"\ufeff"}'.encode(), "\ufeff"),
}


@pytest.mark.parametrize(("body", "data"), ODD_BUT_GOOD.values(), ids=ODD_BUT_GOOD.keys())
def test_what_is_odd_but_json_arrives_as_it_was_sent(server: RunningServer, body: bytes, data: object) -> None:
    assert send(server, body).status == 201
    assert ask(server.port, request("GET", MESSAGES)).json["data"] == data


@pytest.mark.parametrize("junk", [b"", b"\xff" * 64, b"\x00" * 1_000, bytes(range(256))])
@pytest.mark.parametrize("verb", ["messages", "ack", "release", "extend"])
def test_a_frame_of_junk_is_refused(server: RunningServer, verb: str, junk: bytes) -> None:
    sent = request("POST", f"{QUEUE}/{verb}", junk, content_type="application/vnd.penstock.frame")

    assert ask(server.port, sent).code in {"bad_request", "bad_field"}


def test_a_compressed_body_is_refused_and_told_why(server: RunningServer) -> None:
    answer = send(server, gzip.compress(BODY), content_encoding="gzip")

    assert answer.code == "unsupported_media_type"
    assert answer.json["field"] == "Content-Encoding"
    assert "gzip" in answer.json["detail"]
    assert send(server, BODY, content_encoding="identity").status == 201


# What a page in a browser can send to another site without asking it first.
SIMPLE_TYPES = (
    "text/plain",
    "text/plain;charset=UTF-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "",
)


@pytest.mark.parametrize("content_type", SIMPLE_TYPES)
def test_a_page_in_a_browser_cannot_send_by_a_form(server: RunningServer, content_type: str) -> None:
    assert send(server, BODY, content_type=content_type).code == "unsupported_media_type"
    assert count(server) == 0


@pytest.mark.parametrize(
    "site", [{"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"origin": "null"}]
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", QUEUE + "/purge"), ("GET", MESSAGES), ("POST", QUEUE + "/lease")]
)
def test_a_page_of_another_site_cannot_do_what_needs_no_body(
    server: RunningServer, method: str, path: str, site: dict[str, str]
) -> None:
    send(server, BODY)

    assert ask(server.port, request(method, path, content_type="", **site)).code == "cross_site"
    assert ask(server.port, request("GET", QUEUE)).json["ready"] == 1


def test_a_page_that_the_server_serves_may_ask(server: RunningServer) -> None:
    for site in ({"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"}, {"origin": "http://localhost"}):
        assert ask(server.port, request("GET", MESSAGES, **site)).status == 200
    assert ask(server.port, request("GET", "/docs", sec_fetch_site="cross-site")).status == 200


def test_a_preflight_of_another_site_is_granted_nothing(server: RunningServer) -> None:
    asked = {"origin": "http://evil.example", "access_control_request_method": "POST"}
    answer = ask(server.port, request("OPTIONS", MESSAGES, **asked))

    assert answer.status in {403, 405}
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"]
)
def test_a_name_that_was_made_to_point_here_is_refused(server: RunningServer, host: str) -> None:
    assert ask(server.port, request("GET", MESSAGES, host=host)).code == "wrong_host"
    assert ask(server.port, request("GET", MESSAGES, host=host, authorization="Bearer any")).code == "wrong_host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.8.9.1", "[::1]:8080"])
def test_every_name_of_loopback_is_answered_to(server: RunningServer, host: str) -> None:
    assert ask(server.port, request("GET", MESSAGES, host=host)).status == 200


def test_a_request_has_one_host(server: RunningServer) -> None:
    assert ask(server.port, request("GET", MESSAGES, host="")).code == "bad_request"
    assert ask(server.port, b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n").code == "bad_request"
    assert ask(server.port, b"GET / HTTP/1.0\r\n\r\n").status == 200


SMUGGLED = f"POST {QUEUE}/purge HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
CHUNKED = b"c\r\n" + BODY + b"\r\n0\r\n\r\n"
SMUGGLING = {
    "a length, and chunks": HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks, and a length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 12\r\n\r\n" + CHUNKED,
    "two lengths": HEAD + b"content-length: 12\r\ncontent-length: 5\r\n\r\n" + BODY,
    "a length with a sign": HEAD + b"content-length: +12\r\n\r\n" + BODY,
    "a negative length": HEAD + b"content-length: -1\r\n\r\n" + BODY,
    "a hexadecimal length": HEAD + b"content-length: 0x0c\r\n\r\n" + BODY,
    "a length beyond 64 bits": HEAD + b"content-length: 99999999999999999999999\r\n\r\n" + BODY,
    "an encoding that is almost chunked": HEAD + b"transfer-encoding: xchunked\r\n\r\n" + CHUNKED,
    "chunked, but not last": HEAD + b"transfer-encoding: chunked, identity\r\n\r\n" + CHUNKED,
    "a blank before the colon": HEAD + b"transfer-encoding : chunked\r\n\r\n" + CHUNKED,
    "a size of a chunk that is none": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + BODY,
    "a size of a chunk beyond 64 bits": HEAD + b"transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + BODY,
    "lines that end without a return": HEAD.replace(b"\r\n", b"\n") + b"content-length: 12\n\n" + BODY,
    "a line that goes on": b"GET / HTTP/1.1\r\nhost: localhost\r\n folded: x\r\n\r\n",
    "a NUL in a header": b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
    "bytes of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 5,
    "the words of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a method that nobody knows": b"BREW / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a target at another host": b"GET http://evil.example/api/queues HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a target with a user": b"GET http://localhost@evil.example/docs HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a target without a path": b"GET http://localhost HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a target to be connected with": b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n",
    "no version": b"GET /health/live\r\n\r\n",
    "a path that is not ASCII": b"GET /api/queues/\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("sent", SMUGGLING.values(), ids=SMUGGLING.keys())
def test_a_request_that_two_could_read_differently_is_refused_and_ends_the_connection(
    server: RunningServer, sent: bytes
) -> None:
    with connect(server.port) as connection:
        connection.sendall(sent)
        stream = connection.makefile("rb")
        answer = read_answer(stream)

        assert answer.status == 400
        assert stream.read() == b""
    assert count(server) == 0


def test_a_target_that_names_the_host_of_its_header_is_answered(server: RunningServer) -> None:
    for target in (b"http://localhost/health/live", b"HTTP://LOCALHOST/health/live"):
        assert ask(server.port, b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target).status == 200
    assert ask(server.port, b"GET http://evil.example/ HTTP/1.1\r\nhost: evil.example\r\n\r\n").code == "wrong_host"


MANY = b",".join(b'"k%d":1' % number for number in range(1_000_000))
MANY_VALUES = {
    "a million keys": (b'{"data":{%b}}' % MANY, "application/json"),
    "a million keys of attributes": (b'{"data":"x","attributes":{%b}}' % MANY, "application/json"),
    "a million messages": (b'{"messages":[' + b'{"data":1},' * 1_000_000 + b"{}]}", "application/json"),
    "lists in a list": (b'{"data":[' + b"[]," * 1_000_000 + b"[]]}", "application/json"),
    "commas, and texts with quotes": (b'{"data":[' + b'"\\",",' * 1_000_000 + b"1]}", "application/json"),
    "a million empty lists": (b"\x81\xa4data\xdd\x00\x0f\x42\x40" + b"\x90" * 1_000_000, MSGPACK),
    "a million numbers and much text": (
        b'{"data":["%b",%b1]}' % (b"x" * 5_000_000, b"1," * 1_000_000),
        "application/json",
    ),
    "a million texts": (pack({"data": ["text"] * 1_000_000}), MSGPACK),
}


@pytest.mark.parametrize(("body", "content_type"), MANY_VALUES.values(), ids=MANY_VALUES.keys())
def test_a_body_of_a_million_values_is_refused_before_it_is_decoded(
    server: RunningServer, body: bytes, content_type: str
) -> None:
    answer = send(server, body, content_type=content_type)

    assert (answer.status, answer.code, answer.json["limit"]) == (413, "body_too_large", 200_000)
    assert count(server) == 0


def test_a_request_of_sqs_with_too_many_values_is_refused(server: RunningServer) -> None:
    many = b",".join(b'"k%d":{}' % number for number in range(100_000))
    body = b'{"QueueUrl":"http://localhost/000000000000/orders","MessageBody":"x","MessageAttributes":{%b}}' % many
    target = {"x_amz_target": "AmazonSQS.SendMessage", "content_type": "application/x-amz-json-1.0"}

    answer = ask(server.port, request("POST", "/", body, **target))
    assert answer.status in {400, 413}
    assert "10000 values" in answer.json["message"]
    assert count(server) == 0


def test_a_large_text_may_hold_any_number_of_commas(server: RunningServer) -> None:
    text = 'a,"b",\\' * 100_000
    assert send(server, msgspec.json.encode({"data": text})).status == 201
    assert send(server, pack({"data": text}), content_type=MSGPACK).status == 201
    received = ask(server.port, request("GET", MESSAGES + "?limit=2")).json["messages"]
    assert [each["data"] for each in received] == [text, text]


OLD_BROWSER = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/15.6 Safari/605.1.15"


@pytest.mark.parametrize("referer", ["", "http://evil.example/"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/?Action=CreateQueue&QueueName=made-by-a-page"),
        ("GET", "/000000000000/orders?Action=PurgeQueue"),
        ("POST", "/?Action=CreateQueue&QueueName=made-by-a-page"),
        ("GET", MESSAGES),
        ("POST", QUEUE + "/purge"),
    ],
)
def test_a_page_in_a_browser_that_does_not_say_which_site_asks_changes_nothing(
    server: RunningServer, method: str, path: str, referer: str
) -> None:
    send(server, BODY)
    by = {"user_agent": OLD_BROWSER, "referer": referer}

    assert ask(server.port, request(method, path, content_type="", **by)).code == "cross_site"
    assert count(server) == 1
    assert ask(server.port, request("GET", "/api/queues/made-by-a-page")).status == 404


def test_an_old_browser_uses_our_own_pages_and_an_old_sdk_asks_by_get(server: RunningServer) -> None:
    by = {"user_agent": OLD_BROWSER}
    assert ask(server.port, request("GET", "/docs", **by)).status == 200
    assert ask(server.port, request("GET", QUEUE, **by, referer="http://localhost/docs")).status == 200
    for agent in ("Boto/2.49.0 Python/2.7.18 Linux/5.4", "curl/8.5.0", ""):
        asked = request("GET", "/?Action=GetQueueUrl&QueueName=orders", content_type="", user_agent=agent)
        assert ask(server.port, asked).status == 200


def test_a_body_shorter_than_it_says_sends_nothing(server: RunningServer) -> None:
    with connect(server.port) as connection:
        connection.sendall(HEAD + b"content-length: 100\r\n\r\n" + BODY)
        connection.shutdown(1)

        assert connection.makefile("rb").read() == b""
    assert count(server) == 0


def test_what_follows_a_body_is_read_as_the_next_request(server: RunningServer) -> None:
    with connect(server.port) as connection:
        connection.sendall(HEAD + b"content-length: 12\r\n\r\n" + BODY + b"}}}\r\n\r\n")
        stream = connection.makefile("rb")
        statuses = [read_answer(stream).status]
        statuses += [int(line.split()[1]) for line in stream.read().splitlines() if line.startswith(b"HTTP/1.1")]

        # The second is refused, or not answered; its connection ends in any case.
        assert statuses in ([201, 400], [201], [400])
    assert count(server) <= 1


def test_chunks_with_extensions_and_trailers_are_a_body(server: RunningServer) -> None:
    chunks = b"5;name=value\r\n" + BODY[:5] + b"\r\n7\r\n" + BODY[5:] + b"\r\n0\r\nx-trailer: a\r\n\r\n"

    assert ask(server.port, HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks).status == 201
    assert count(server) == 1


def test_a_trailer_is_not_taken_for_a_header(server: RunningServer) -> None:
    chunks = b"c\r\n" + BODY + b"\r\n0\r\nidempotency-key: smuggled\r\n\r\n"

    assert len(BODY) == 0xC
    for _ in range(2):
        assert ask(server.port, HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks).status == 201
    assert count(server) == 2


def test_requests_sent_together_are_answered_in_their_order(server: RunningServer) -> None:
    bodies = [b'{"data":"%d"}' % number for number in range(USUAL.pipelined_max)]
    with connect(server.port) as connection:
        connection.sendall(b"".join(request("POST", MESSAGES, body) for body in bodies) + request("GET", "/nowhere"))
        stream = connection.makefile("rb")
        ids = [read_answer(stream).json["message_id"] for _ in bodies]
        last = read_answer(stream)

    received = ask(server.port, request("GET", MESSAGES + "?limit=100")).json["messages"]
    assert [each["message_id"] for each in received] == ids
    assert [each["data"] for each in received] == [str(number) for number in range(len(bodies))]
    assert last.code == "not_found"


PATHS = {
    "/api/queues/%2e%2e": "queue_not_found",
    "/api/queues/../queues": "not_found",
    "/api/queues/%00": "queue_not_found",
    "/api/queues/%ff": "queue_not_found",
    "/api/queues/%ed%a0%80": "queue_not_found",
    "/api/queues/orders%2Fmessages": "not_found",
    "/api/queues/orders%2fmessages": "not_found",
    "/api/queues/q_zz": "queue_not_found",
    "/api/queues/q_" + "f" * 500: "queue_not_found",
    "/api/queues/" + "a" * 50_000: "queue_not_found",
    "/api/queues/" + "%F0%9F%98%80" * 1_000: "queue_not_found",
    "//api/queues": "not_found",
    "/api/queues/": "not_found",
    "/api/queues//messages": "queue_not_found",
    "/docs/../../../etc/passwd": "not_found",
    "/docs/%2e%2e%2fopenapi.py": "not_found",
    "/docs/docs.js/": "not_found",
    "/api/queues?limit=1&limit=2": "bad_field",
    "/api/queues?limit=" + "9" * 5_000: "bad_field",
    "/api/queues?limit=%ff": "bad_request",
    "/api/queues?unknown=1": "bad_field",
    "/api/queues?" + "&".join(f"a{number}=1" for number in range(100)): "bad_request",
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:40])
def test_a_path_that_plays_tricks_leads_nowhere(server: RunningServer, path: str) -> None:
    answer = ask(server.port, request("GET", path))

    assert answer.code == PATHS[path]
    assert len(answer.body) < 5_000


@pytest.mark.parametrize("method", ["PUT", "TRACE", "CONNECT", "OPTIONS"])
def test_a_method_that_is_not_for_a_path_is_told_those_that_are(server: RunningServer, method: str) -> None:
    answer = ask(server.port, request(method, MESSAGES))

    assert answer.code == "method_not_allowed"
    assert {each.strip() for each in answer.headers["allow"].split(",")} == {"GET", "POST"}
