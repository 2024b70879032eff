"""Options, environment and profiles, in this order; no secret is ever shown."""

import pickle
import time

import pytest

from hyperslab.errors import AccessError, InvalidInputError
from hyperslab.store import locate
from hyperslab.store.s3 import S3Settings, read_settings

KEYS = {"AWS_ACCESS_KEY_ID": "env-key", "AWS_SECRET_ACCESS_KEY": "env-hush"}


@pytest.fixture
def profiles(tmp_path):
    """An environment with a home directory that holds profiles."""
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = default-key\naws_secret_access_key = default-hush%\n"
        "[work]\naws_access_key_id = work-key\naws_secret_access_key = work-hush\n"
        "aws_session_token = work-token\n"
    )
    (folder / "config").write_text(
        "[default]\nregion = eu-default-1\n"
        "[profile work]\nregion = eu-work-1\nendpoint_url = http://work:9000\n"
        "s3 =\n    addressing_style = path\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n"
        "[profile sso]\nsso_session = corp\n"
        "[profile bare]\nregion = eu-bare-1\n"
    )
    return {"HOME": str(tmp_path)}


def keys(settings):
    return settings.access_key_id, settings.secret_access_key, settings.session_token


def test_the_options_go_first(profiles):
    options = {"access_key_id": "k", "secret_access_key": "s", "region": "r-1", "endpoint": "https://h/"}
    environment = {
        **profiles,
        **KEYS,
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "x",
        "AWS_ENDPOINT_URL": "http://e",
    }
    settings = read_settings("b", options, environment)
    assert keys(settings) == ("k", "s", None)
    assert (settings.region, settings.region_chosen, settings.endpoint) == ("r-1", True, "https://h")


def test_then_the_environment(profiles):
    environment = {
        **profiles,
        **KEYS,
        "AWS_SESSION_TOKEN": "t",
        "AWS_DEFAULT_REGION": "d",
        "AWS_PROFILE": "work",
    }
    settings = read_settings("b", None, environment)
    assert keys(settings) == ("env-key", "env-hush", "t")
    assert (settings.region, settings.region_chosen) == ("d", False)
    assert read_settings("b", None, {**environment, "AWS_REGION": "r"}).region == "r"
    urls = {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"}
    assert read_settings("b", None, {**environment, **urls}).endpoint == "http://s3"


def test_then_the_profile(profiles):
    settings = read_settings("b", None, profiles)
    assert keys(settings) == ("default-key", "default-hush%", None)
    assert settings.region == "eu-default-1"
    settings = read_settings("b", None, {**profiles, "AWS_PROFILE": "work"})
    assert keys(settings) == ("work-key", "work-hush", "work-token")
    assert (settings.region, settings.endpoint) == ("eu-work-1", "http://work:9000")


def test_a_profile_that_is_asked_for_goes_before_the_environment(profiles):
    settings = read_settings("b", {"profile": "work"}, {**profiles, **KEYS})
    assert keys(settings) == ("work-key", "work-hush", "work-token")
    with pytest.raises(InvalidInputError, match=r"'nobody'.*bare, default, role, sso, work"):
        read_settings("b", {"profile": "nobody"}, profiles)
    with pytest.raises(AccessError, match="no access key"):
        read_settings("b", {"profile": "bare"}, profiles)


@pytest.mark.parametrize(("name", "how"), [("role", "role_arn"), ("sso", "sso_session")])
def test_profiles_that_log_in_elsewhere_say_so(profiles, name, how):
    with pytest.raises(AccessError, match=f"{how}.*export-credentials"):
        read_settings("b", {"profile": name}, profiles)


def test_files_elsewhere(profiles, tmp_path):
    other = tmp_path / "elsewhere"
    other.write_text("[default]\naws_access_key_id=o\naws_secret_access_key=p\n")
    environment = {
        **profiles,
        "AWS_SHARED_CREDENTIALS_FILE": str(other),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }
    settings = read_settings("b", None, environment)
    assert keys(settings) == ("o", "p", None)
    assert settings.region is None


def test_a_broken_file_does_not_show_its_lines(tmp_path):
    file = tmp_path / "credentials"
    for text in ("aws_secret_access_key = hush\n", "[default]\nhush\n", "[default\n"):
        file.write_text(text)
        with pytest.raises(AccessError, match="credentials") as caught:
            read_settings("b", None, {"AWS_SHARED_CREDENTIALS_FILE": str(file), "HOME": str(tmp_path)})
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None
    file.write_bytes(b"\xff\xfe[default]")
    with pytest.raises(AccessError):
        read_settings("b", None, {"AWS_SHARED_CREDENTIALS_FILE": str(file), "HOME": str(tmp_path)})


def test_no_credentials_is_an_error_at_once(no_aws):
    started = time.monotonic()
    with pytest.raises(AccessError, match=r"AWS_ACCESS_KEY_ID.*storage_options.*anonymous=True"):
        locate("s3://bucket/x")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"anonymous": True}, {}),
        ({"anon": "true"}, {}),
        ({"instance_metadata": True}, {}),
        ({}, {"AWS_SKIP_SIGNATURE": "true"}),
        ({}, {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x"}),
        ({}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x"}),
        ({}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/x"}),
    ],
)
def test_ways_without_keys(options, environment, tmp_path):
    settings = read_settings("b", options, {"HOME": str(tmp_path), **environment})
    assert keys(settings) == (None, None, None)


@pytest.mark.parametrize(
    "options",
    [
        {
            "key": "k",
            "secret": "s",
            "token": "t",
            "endpoint_url": "http://h:1",
            "client_kwargs": {"region_name": "r"},
        },
        {
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "aws_session_token": "t",
            "aws_endpoint_url": "http://h:1",
            "aws_region": "r",
        },
        {
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_SESSION_TOKEN": "t",
            "AWS_ENDPOINT_URL": "http://h:1",
            "AWS_REGION": "r",
        },
        {
            "client_kwargs": {
                "aws_access_key_id": "k",
                "aws_secret_access_key": "s",
                "aws_session_token": "t",
                "endpoint_url": "http://h:1",
            },
            "region": "r",
            "profile": None,
        },
    ],
)
def test_other_libraries_names(options):
    settings = read_settings("b", options, {})
    assert keys(settings) == ("k", "s", "t")
    assert (settings.endpoint, settings.region) == ("http://h:1", "r")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regoin": "x"}, "'regoin'.*'region'"),
        ({"zzz": 1}, "known are endpoint"),
        ({"anon": "perhaps"}, "'anon'"),
        ({"anon": 1}, "'anon'"),
        ({"endpoint": 5}, "'endpoint'"),
        ({"endpoint": ""}, "'endpoint'"),
        ({"endpoint": "localhost:9000"}, "http://host:port"),
        ({"endpoint": "http://me:hush@host"}, "without a login"),
        ({"endpoint": "http://host:port"}, "http://host:port"),
        ({"key": "k"}, "both"),
        ({"secret": "hush"}, "both"),
        ({"secret": b"hush"}, "'secret'"),
        ({"key": "k", "access_key_id": "other", "secret": "hush"}, "twice"),
        ({"client_kwargs": 3}, "mapping"),
        ({3: 4}, "strings"),
    ],
)
def test_options_that_cannot_be_right(options, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        read_settings("b", {"region": "r", **options}, {})
    assert "hush" not in str(caught.value)


def test_secrets_are_not_shown(no_aws):
    settings = read_settings("b", {"key": "hush1", "secret": "hush2", "token": "hush3"}, {})
    store, _ = locate("s3://b/x", {"key": "hush1", "secret": "hush2", "token": "hush3"})
    assert "hush" not in repr(settings) + repr(store) + store.address + repr(store._backend) + repr(
        store._backend.place
    )
    again = pickle.loads(pickle.dumps(store))
    assert again._backend.settings == store._backend.settings


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (S3Settings("b"), "https://s3.r-1.amazonaws.com"),
        (S3Settings("b", virtual_hosted=True), "https://b.s3.r-1.amazonaws.com"),
        (S3Settings("b", endpoint="http://h:1"), "http://h:1"),
        (S3Settings("b", endpoint="http://h:1", virtual_hosted=True), "http://b.h:1"),
        (S3Settings("b", endpoint="http://b.h:1", virtual_hosted=True), "http://b.h:1"),
    ],
)
def test_where_requests_go(settings, url):
    assert settings.url("r-1") == url


def test_china_has_a_domain_of_its_own():
    assert S3Settings("b").url("cn-north-1") == "https://s3.cn-north-1.amazonaws.com.cn"
