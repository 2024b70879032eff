"""Options and environment of Azure, Google and web servers: what goes first, what is refused, what is never shown."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import AccessError, HyperslabError, InvalidInputError
from hyperslab.store import azure, google, http, locate

KEY = "aHVzaC1odXNo"
STRING = f"DefaultEndpointsProtocol=https;AccountName=abc;AccountKey={KEY};EndpointSuffix=core.windows.net"
PRINCIPAL = {"tenant_id": "t", "client_id": "c", "client_secret": "hush"}


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No credentials from the environment or the home directory."""
    import os

    for name in list(os.environ):
        if name.startswith(("AZURE_", "GOOGLE_", "MSI_", "IDENTITY_", "CLOUDSDK_", "STORAGE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "environ", "login"),
    [
        ({"account_key": KEY}, {}, "access_key"),
        ({"sas_token": "?sig=hush"}, {}, "sas_token"),
        ({"token": "hush"}, {}, "bearer_token"),
        (PRINCIPAL, {}, "client_secret"),
        ({"azure_cli": True}, {}, "azure_cli"),
        ({"use_azure_cli": "true"}, {}, "azure_cli"),
        ({"managed_identity": True}, {}, "managed_identity"),
        ({"anon": True}, {}, "anonymous"),
        ({}, {"AZURE_STORAGE_ACCOUNT_KEY": KEY}, "access_key"),
        ({}, {"AZURE_STORAGE_KEY": KEY}, "access_key"),
        ({}, {"AZURE_STORAGE_SAS_TOKEN": "sig=hush"}, "sas_token"),
        ({}, {f"AZURE_{name.upper()}": value for name, value in PRINCIPAL.items()}, "client_secret"),
        ({}, {"AZURE_FEDERATED_TOKEN_FILE": "/f", "AZURE_CLIENT_ID": "c"}, "workload_identity"),
        ({}, {"IDENTITY_ENDPOINT": "http://x"}, "managed_identity"),
        ({}, {"AZURE_USE_AZURE_CLI": "true"}, "azure_cli"),
        ({}, {"AZURE_SKIP_SIGNATURE": "true"}, "anonymous"),
        ({}, {"AZURE_STORAGE_CONNECTION_STRING": STRING}, "access_key"),
        # Options go before the environment, whatever their kind.
        ({"sas_token": "sig=hush"}, {"AZURE_STORAGE_CONNECTION_STRING": STRING}, "sas_token"),
        ({"anonymous": True}, {"AZURE_STORAGE_ACCOUNT_KEY": KEY}, "anonymous"),
        ({"connection_string": STRING}, {"AZURE_STORAGE_SAS_TOKEN": "sig=hush"}, "access_key"),
    ],
)
def test_azure_logins(options, environ, login):
    environ = {"AZURE_STORAGE_ACCOUNT_NAME": "abc", **environ}
    settings = azure.read_settings("c", options, environ)
    assert settings.login == login
    assert settings.address == "az://c?account=abc"
    assert settings.endpoint == "https://abc.blob.core.windows.net"
    assert not any(hidden in repr(settings) + settings.address for hidden in ("hush", KEY))
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, AccessError, "AZURE_STORAGE_ACCOUNT_KEY"),
        ({"acount_key": "x"}, InvalidInputError, "'account_key'"),
        ({"zzz": 1}, InvalidInputError, "known are account, account_key"),
        ({"account_key": 3}, InvalidInputError, "string"),
        ({"client_secret": "hush", "client_id": "c"}, InvalidInputError, "go together"),
        ({"connection_string": "hush"}, InvalidInputError, "Name=value"),
        ({"account": "UPPER", "anon": True}, InvalidInputError, "3 to 24"),
        ({"account": "a.evil.host/", "anon": True}, InvalidInputError, "3 to 24"),
        ({"endpoint": "nonsense", "anon": True}, InvalidInputError, "https://host"),
        ({"endpoint": "https://me:hush@host", "anon": True}, InvalidInputError, "https://host"),
        ({"account": "abc", "account_name": "abd", "anon": True}, InvalidInputError, "twice"),
    ],
)
def test_azure_refusals(options, kind, words):
    with pytest.raises(kind, match=words) as caught:
        azure.read_settings("c", options, {"AZURE_STORAGE_ACCOUNT": "abc"})
    assert "hush" not in str(caught.value)


def test_azure_without_an_account():
    with pytest.raises(InvalidInputError, match="which storage account"):
        azure.read_settings("c", {"anon": True}, {})


def test_the_emulator():
    settings = azure.read_settings("c", {"emulator": True, "endpoint": "http://localhost:1"}, {})
    assert settings.endpoint == "http://localhost:1/devstoreaccount1"
    settings = azure.read_settings("c", {"connection_string": "UseDevelopmentStorage=true"}, {})
    assert settings.endpoint == "http://127.0.0.1:10000/devstoreaccount1"


@pytest.mark.parametrize(
    ("url", "address", "endpoint"),
    [
        ("az://c/x", "az://c?account=abc", "https://abc.blob.core.windows.net"),
        ("azure://c/x", "az://c?account=abc", "https://abc.blob.core.windows.net"),
        ("abfs://c/x", "az://c?account=abc", "https://abc.blob.core.windows.net"),
        ("abfss://c@abc.dfs.core.windows.net/x", "az://c?account=abc", "https://abc.blob.core.windows.net"),
        ("abfs://c@abc.blob.core.windows.net/x/", "az://c?account=abc", "https://abc.blob.core.windows.net"),
        (
            "abfss://c@abc.dfs.core.chinacloudapi.cn/x",
            "az://c?account=abc&endpoint=abc.blob.core.chinacloudapi.cn",
            "https://abc.blob.core.chinacloudapi.cn",
        ),
    ],
)
def test_azure_urls(bare, url, address, endpoint):
    store, path = locate(url, {"account": "abc", "anonymous": True})
    assert (store.scheme, store.address, path) == ("az", address, "x")
    assert store._backend.settings.endpoint == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "abfss://c@abc.dfs.evil.host/x",
        "abfss://c@evil.host/x",
        "abfss://c@abc.dfs.core.windows.net.evil.host/x",
        "abfss://c@abc.dfs.core.windows.net:1/x",
        "az://c:hush@host/x",
        "az://",
        "az:///x",
        "az://c/a/../b",
        "gs://",
        "gs://b:hush@host/x",
        "gs://b/../x",
        "https://",
        "https:///x",
        "https://me:hush@host/x",
        "https://host:port/x",
        "http://[/x",
        "http://host/a\nb",
        "gs:/bucket/x",
        "https:/host/x",
    ],
)
def test_urls_that_are_refused(bare, url):
    options = {"account": "abc", "anonymous": True} if url.startswith("a") else {}
    options = {"anonymous": True} if url.startswith("gs") else options
    with pytest.raises(InvalidInputError) as caught:
        locate(url, options)
    assert "hush" not in str(caught.value)


def test_the_account_is_named_once(bare):
    with pytest.raises(InvalidInputError, match="give one"):
        locate("abfss://c@abc.dfs.core.windows.net/x", {"account": "abd", "anonymous": True})


@pytest.mark.parametrize(
    ("options", "environ", "login", "secret"),
    [
        ({"token": "hush"}, {}, "token", "hush"),
        ({"token": "anon"}, {}, "anonymous", None),
        ({"token": "cloud"}, {}, "instance_metadata", None),
        ({"token": "/f.json"}, {}, "application_credentials", "/f.json"),
        ({"anonymous": True}, {"GOOGLE_APPLICATION_CREDENTIALS": "/e.json"}, "anonymous", None),
        ({"service_account_path": "/f.json"}, {}, "service_account", "/f.json"),
        ({"service_account_key": "{hush}"}, {}, "service_account_key", "{hush}"),
        ({}, {"GOOGLE_APPLICATION_CREDENTIALS": "/e.json"}, "application_credentials", "/e.json"),
        ({}, {"GOOGLE_SERVICE_ACCOUNT": "/e.json"}, "service_account", "/e.json"),
        ({}, {"GOOGLE_BEARER_TOKEN": "hush"}, "token", "hush"),
        ({}, {"K_SERVICE": "x"}, "instance_metadata", None),
        ({}, {"GOOGLE_SKIP_SIGNATURE": "true"}, "anonymous", None),
    ],
)
def test_google_logins(bare, options, environ, login, secret):
    settings = google.read_settings("b", options, {"HOME": str(bare), **environ})
    assert (settings.login, settings.secret) == (login, secret)
    assert settings.address == "gs://b"
    assert "hush" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_google_finds_what_gcloud_left(bare):
    file = bare / ".config" / "gcloud" / "application_default_credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    settings = google.read_settings("b", None, {"HOME": str(bare)})
    assert (settings.login, settings.secret) == ("application_credentials", str(file))


def test_google_emulator(bare):
    settings = google.read_settings("b", {}, {"HOME": str(bare), "STORAGE_EMULATOR_HOST": "localhost:4443"})
    assert (settings.endpoint, settings.login) == ("http://localhost:4443", "anonymous")
    assert settings.address == "gs://b?endpoint=localhost:4443"


@pytest.mark.parametrize(
    ("options", "environ", "kind", "words"),
    [
        ({}, {}, AccessError, "GOOGLE_APPLICATION_CREDENTIALS"),
        ({"tokn": "hush"}, {}, InvalidInputError, "'token'"),
        ({"zzz": 1}, {}, InvalidInputError, "known are service_account"),
        ({"token": "hush", "anonymous": True}, {}, InvalidInputError, "give one"),
        ({"token": "hush"}, {"GOOGLE_SERVICE_ACCOUNT": "/f"}, InvalidInputError, "unset it"),
        ({"anonymous": True, "endpoint": "ftp://x"}, {}, InvalidInputError, "endpoint"),
    ],
)
def test_google_refusals(bare, options, environ, kind, words):
    with pytest.raises(kind, match=words) as caught:
        google.read_settings("b", options, {"HOME": str(bare), **environ})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokn": "hush"}, "'token'"),
        ({"zzz": 1}, "known are token, username, password, headers"),
        ({"username": "me"}, "go together"),
        ({"username": "me", "password": "hush", "token": "hush"}, "give one"),
        ({"headers": "hush"}, "mapping"),
        ({"headers": {"X": 3}}, "string"),
        ({"headers": {"Range": "bytes=0-1"}}, "set by Hyperslab"),
        ({"headers": {"a b": "hush"}}, "cannot be sent"),
        ({"headers": {"X": "hush\r\nY: 1"}}, "one line"),
        ({"headers": {"X": "hüsh"}}, "cannot be sent"),
        ({"token": "hüsh\x7f"}, "cannot be sent"),
        ({"headers": {"authorization": "hush"}, "token": "hush"}, "one login"),
    ],
)
def test_http_refusals(options, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        http.read_settings("https://host/x", options)
    assert "hush" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_url_gives_a_path_or_a_typed_error(text):
    for scheme in ("http://host/", "https://", "az://c/", "abfss://", "gs://"):
        options = {"account": "abc"} if scheme[0] == "a" else {}
        try:
            store, path = locate(scheme + text, {**options, "anonymous": True} if scheme[0] in "ag" else None)
        except HyperslabError:
            continue
        assert store.scheme in ("az", "gs", "http")
        assert not {"", ".", ".."} & set(path.split("/")) or path == ""
