"""Settings of a function: nothing is open by default, and what is wrong is said at the start."""

import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.functions import function_config

KEY = "me:" + "ab" * 16


def config(**variables):
    return function_config(environ={f"HYPERSLAB_FUNCTION_{name}": value for name, value in variables.items()})


def test_from_the_environment(no_aws):
    found = config(
        ROOTS="s3://bench/run/1/, s3://other",
        KEYS=f"{KEY},you:{'cd' * 20}",
        STORAGE_OPTIONS='{"endpoint": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": "hidden-one"}',
        LIMITS='{"result_bytes": 6000000, "chunks": 7}',
        MEMORY_MB="512",
        TIMEOUT_S="2.5",
    )
    assert [(root.bucket, root.prefix) for root in found.roots] == [("s3://bench", "run/1"), ("s3://other", "")]
    assert sorted(found.keys) == ["me", "you"]
    assert (found.limits.result_bytes, found.limits.chunks, found.memory_mb, found.timeout_s) == (6000000, 7, 512, 2.5)
    assert "hidden-one" not in repr(found)
    assert "ab" * 16 not in repr(found)


def test_nobody_may_call_by_default():
    with pytest.raises(InvalidInputError, match="anybody may call"):
        config(ROOTS="memory://lab")
    assert config(ROOTS="memory://lab", AUTH="provider").keys == {}


@pytest.mark.parametrize(
    "variables",
    [
        {"ROOTS": ""}, {"ROOTS": "/data"}, {"ROOTS": "file:///data"}, {"ROOTS": "http://example.org/a"},
        {"ROOTS": "memory://lab/../x"}, {"KEYS": "me"}, {"KEYS": "me:xy"}, {"KEYS": "me:00"}, {"AUTH": "none"},
        {"STORAGE_OPTIONS": "{"}, {"STORAGE_OPTIONS": "[]"}, {"LIMITS": '{"result_bytes": 0}'},
        {"LIMITS": '{"result_bytes": 1.5}'}, {"LIMITS": '{"resultbytes": 1}'}, {"LIMITS": '{"chunks": true}'},
        {"MEMORY_MB": "many"}, {"MEMORY_MB": "128"}, {"MEMORY_MB": "nan"}, {"TIMEOUT_S": "-1"}, {"TIMEOUT_S": "1e9"},
        {"KEY_FILE": "/no/such/file"},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_settings_are_refused(variables):
    with pytest.raises(InvalidInputError):
        config(**{"ROOTS": "memory://lab", "KEYS": KEY, **variables})


def test_keys_from_a_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# who may call\n\n{KEY}\n", encoding="utf-8")
    assert list(config(ROOTS="memory://lab", KEY_FILE=str(path)).keys) == ["me"]


@pytest.mark.parametrize(
    ("key", "held"),
    [
        ("run", True), ("run/a", True), ("run/a/b", True), ("running/a", False), ("ru", False), ("a/run", False),
        # Some stores take a backslash for '/'.
        (r"run/a\b", True), (r"run/..\secret", False), (r"run/a\..\..\secret", False), (r"run\..\secret", False),
    ],
)  # fmt: skip
def test_a_prefix_is_whole_parts_of_a_path(key, held):
    (root,) = function_config(["memory://lab/run"], keys=[KEY], environ={}).roots
    assert root.holds(key) is held


def test_the_providers_memory_counts():
    found = function_config(["memory://l"], keys=[KEY], environ={"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1024"})
    assert found.memory_mb == 1024
    assert found.work_bytes + found.held_bytes < (1024 - 256) << 20
