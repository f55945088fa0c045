"""Settings come from options, environment, file and defaults, in this order, and a wrong one is named."""

import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings import (
    BadSetting,
    ClientSettings,
    Loaded,
    LogLevel,
    NotSecured,
    ServerSettings,
    check_is_secured,
    find_file,
    load,
    read_file,
)


def server(
    file: Path | None = None, environment: dict[str, str] | None = None, **options: object
) -> Loaded[ServerSettings]:
    return load(ServerSettings, options=options, environment=environment or {}, file=file)


def written(folder: Path, text: str) -> Path:
    path = folder / "penstock.toml"
    path.write_text(text)
    return path


def test_a_server_without_settings_is_for_this_machine_only() -> None:
    found = server()
    assert found.settings == ServerSettings()
    assert found.settings.is_on_loopback
    assert set(found.origins.values()) == {"default"}


def test_an_option_counts_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nport = 1\nkafka_port = 2\nshards = 3\n")
    environment = {"PENSTOCK_PORT": "10", "PENSTOCK_KAFKA_PORT": "20"}
    found = server(file, environment, port=100)
    assert (found.settings.port, found.settings.kafka_port, found.settings.shards) == (100, 20, 3)
    assert found.origins["port"] == "--port"
    assert found.origins["kafka_port"] == "PENSTOCK_KAFKA_PORT"
    assert found.origins["shards"] == f"{file} [server]"
    assert found.origins["host"] == "default"


def test_every_type_is_read_from_the_environment_and_from_a_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[server]\ndata = "/srv"\nbehind_proxy = true\nstop_timeout_s = 3\nlog_level = "error"\n[client]\nkey = "k"\n',
    )
    environment = {
        "PENSTOCK_DATA": "/srv",
        "PENSTOCK_BEHIND_PROXY": "Yes",
        "PENSTOCK_STOP_TIMEOUT_S": "3",
        "PENSTOCK_LOG_LEVEL": "error",
    }
    wanted = ServerSettings(data=Path("/srv"), behind_proxy=True, stop_timeout_s=3.0, log_level=LogLevel.ERROR)
    assert server(file).settings == server(None, environment).settings == wanted
    assert load(ClientSettings, options={}, environment={}, file=file).settings.key == "k"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[server]\nprot = 1", "has no setting prot; is port meant?"),
        ("[server]\nzebra = 1", "has no setting zebra; there are host, port"),
        ("[sever]\nport = 1", "there is no section [sever]; there are [server] and [client]"),
        ("port = 1", "there is no section [port]"),
        ('[server]\nport = "1"', "[server] port is '1'; it must be a whole number"),
        ("[server]\nport = true", "[server] port is True; it must be a whole number"),
        ("[server]\nport = 1.5", "[server] port is 1.5; it must be a whole number"),
        ("[server]\nport = 70000", "port is 70000; it must be from 0 to 65535"),
        ("[server]\nstop_timeout_s = nan", "stop_timeout_s is nan; it must be from 0 to 3600"),
        ("[server]\nbehind_proxy = 1", "it must be true or false"),
        ('[server]\nlog_level = "loud"', "it must be one of debug, info, warning, error"),
        ('[server]\ndata = ""', "it must be the path of a folder"),
        ("[client]\nurl = 1", "[client] url is 1; it must be text"),
        ("[server\n", "Expected"),
    ],
)
def test_what_a_file_may_not_say_is_named_with_what_is_allowed(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    said = complaint(lambda: (server(file), load(ClientSettings, options={}, environment={}, file=file)))
    assert said is not None
    assert sentence in said
    assert str(file) in said


@pytest.mark.parametrize(
    ("variable", "text"),
    [("PENSTOCK_PORT", "x"), ("PENSTOCK_PORT", "-1"), ("PENSTOCK_BEHIND_PROXY", "perhaps"), ("PENSTOCK_SHARDS", "0")],
)
def test_a_wrong_variable_of_the_environment_is_named(variable: str, text: str) -> None:
    with pytest.raises(BadSetting, match=f"^{variable}"):
        server(None, {variable: text})


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadSetting, match=r"penstock\.toml"):
        read_file(path)


def test_what_kubernetes_puts_into_the_environment_is_no_setting() -> None:
    assert server(None, {"PENSTOCK_PORT": "tcp://10.0.0.1:8080"}).settings.port == 8080


def test_the_file_is_the_one_named_or_the_one_in_the_folder(tmp_path: Path) -> None:
    assert find_file(None, {}, tmp_path) is None
    here = written(tmp_path, "")
    other = tmp_path / "other.toml"
    other.write_text("")
    assert find_file(None, {}, tmp_path) == here
    assert find_file(None, {"PENSTOCK_CONFIG": str(other)}, tmp_path) == other
    assert find_file(here, {"PENSTOCK_CONFIG": str(other)}, tmp_path) == here
    with pytest.raises(BadSetting, match="there is no such file"):
        find_file(tmp_path / "missing.toml", {}, tmp_path)


@pytest.mark.parametrize(
    ("store", "folder"),
    [
        ("", Path("penstock-data")),
        ("file:/srv/q", Path("/srv/q")),
        ("file:./q", Path("q")),
        ("memory:", None),
        ("postgresql://localhost/queues", None),
    ],
)
def test_a_store_is_a_folder_or_memory_or_a_database(store: str, folder: Path | None) -> None:
    assert ServerSettings(store=store).store_folder == folder


@pytest.mark.parametrize(
    ("store", "sentence"),
    [
        ("postgresql:queues", "must be file:PATH, postgresql://…"),
        ("file:", "must be file:PATH"),
        ("redis://x", "must be file:PATH"),
    ],
)
def test_a_store_that_cannot_be_is_refused(store: str, sentence: str) -> None:
    with pytest.raises(BadSetting, match=sentence):
        ServerSettings(store=store)


def test_half_of_tls_is_refused() -> None:
    with pytest.raises(BadSetting, match="belong together"):
        ServerSettings(tls_cert="cert.pem")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_needs_neither_keys_nor_tls(host: str) -> None:
    check_is_secured(ServerSettings(host=host), has_keys=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "queue.example", "localhost.example"])
def test_a_server_that_others_reach_needs_keys_and_tls(host: str) -> None:
    with pytest.raises(NotSecured, match="penstock key create"):
        check_is_secured(ServerSettings(host=host, tls_cert="c", tls_key="k"), has_keys=False)
    with pytest.raises(NotSecured, match="--tls-cert and --tls-key"):
        check_is_secured(ServerSettings(host=host), has_keys=True)
    check_is_secured(ServerSettings(host=host, tls_cert="c", tls_key="k"), has_keys=True)
    check_is_secured(ServerSettings(host=host, behind_proxy=True, hosts="queues.example"), has_keys=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1"])
def test_a_server_behind_a_proxy_needs_keys_and_names_also_on_loopback(host: str) -> None:
    with pytest.raises(NotSecured, match="penstock key create"):
        check_is_secured(ServerSettings(host=host, behind_proxy=True, hosts="queues.example"), has_keys=False)
    with pytest.raises(NotSecured, match="--hosts"):
        check_is_secured(ServerSettings(host=host, behind_proxy=True), has_keys=True)
    check_is_secured(ServerSettings(host=host, behind_proxy=True, hosts="queues.example"), has_keys=True)


def test_names_of_hosts_are_names_without_a_port() -> None:
    assert ServerSettings(hosts="Queues.example, q.example").host_names == {"queues.example", "q.example"}
    for wrong in ("queues.example:8080", "http://queues.example", "a b", "*.example"):
        with pytest.raises(BadSetting, match="hosts has"):
            ServerSettings(hosts=wrong)


def complaint(work: Callable[[], object]) -> str | None:
    """Return what a bad setting is called, None if all was well."""
    try:
        work()
    except BadSetting as error:
        return str(error)
    return None


@given(st.dictionaries(st.sampled_from(["PENSTOCK_PORT", "PENSTOCK_DATA", "PENSTOCK_LOG_LEVEL"]), st.text()))
def test_no_environment_does_worse_than_a_bad_setting(environment: dict[str, str]) -> None:
    said = complaint(lambda: server(None, environment))
    assert said is None or said.startswith("PENSTOCK_")


@given(text=st.text(string.printable))
def test_no_file_does_worse_than_a_bad_setting(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.getbasetemp(), text)
    said = complaint(lambda: read_file(path))
    assert said is None or said.startswith(str(path))
