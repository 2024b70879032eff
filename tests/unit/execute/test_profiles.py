"""Measured profiles as files: found by address, replaced whole, and never in the way when they are damaged."""

import json
import warnings

import pytest

from hyperslab.execute import profiles
from hyperslab.execute.profiles import all_profiles, find_known, find_profile, save_known, save_profile
from hyperslab.plan import FunctionProfile, Profile
from hyperslab.plan.learn import Observation

PROFILE = Profile(
    "measured", 0.05, (1, 4), (4e7, 1e8), 64, 1e-4, alone=((1023, 0.0), (65536, 0.02)), spread_s=(0.04, 0.07),
    measured_at="2026-11-16T09:00:00+00:00", function=FunctionProfile(0.02, 1e-8),
)  # fmt: skip
ADDRESS = "s3://bench?endpoint=127.0.0.1:8333"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(profiles, "_warned", set())
    return tmp_path / "home"


def test_nothing_is_found_and_nothing_made_before_something_is_saved(own_home) -> None:
    assert find_profile(ADDRESS) is None
    assert all_profiles() == []
    assert not own_home.exists()


def test_a_profile_is_found_by_its_address_only() -> None:
    save_profile(ADDRESS, PROFILE, points=[("alone", 1, 4096, 0.05)])
    assert find_profile(ADDRESS) == PROFILE
    assert find_profile("s3://bench") is None
    known = find_known(ADDRESS)
    assert known is not None
    assert known.points == (("alone", 1, 4096, 0.05),)
    assert known.learner.profile() == PROFILE


def test_a_profile_of_a_version_that_knew_less_of_functions_is_read(own_home) -> None:
    """What it does not say of decoding has typical figures."""
    path = save_profile(ADDRESS, PROFILE)
    values = json.loads(path.read_text())
    for name in ("cut_s", "decoded_byte_s", "work_at_once"):
        del values["profile"]["function"][name]
    path.write_text(json.dumps(values))
    assert find_profile(ADDRESS) == PROFILE
    values["profile"]["function"]["work_at_once"] = 0.5
    path.write_text(json.dumps(values))
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert find_profile(ADDRESS) is None


@pytest.mark.parametrize(
    "address", ["s3://a/../../b", "az://c?account=x&endpoint=[::1]:9", "gs://" + "x" * 250, "s3://ü", "memory://."]
)
def test_any_address_has_a_file_of_its_own_in_the_folder(address, own_home) -> None:
    path = save_profile(address, PROFILE)
    assert path.parent == own_home / "profiles"
    assert find_profile(address) == PROFILE


def test_alike_addresses_do_not_share_a_file() -> None:
    save_profile("s3://a-b", PROFILE)
    assert find_profile("s3://a_b") is None
    assert save_profile("s3://a_b", PROFILE) != save_profile("s3://a-b", PROFILE)


def test_a_new_measurement_replaces_the_old_one_whole(own_home) -> None:
    save_profile(ADDRESS, PROFILE, learned={})
    newer = Profile("measured", 0.01, (1,), (1e8,), 8)
    path = save_profile(ADDRESS, newer)
    assert find_profile(ADDRESS) == newer
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_was_learned_is_kept_beside_it() -> None:
    save_profile(ADDRESS, PROFILE)
    known = find_known(ADDRESS)
    for _ in range(16):
        known.learner.observe(Observation(1, 100, 100, 0.2))
    assert save_known(known)
    again = find_known(ADDRESS)
    assert again.profile == PROFILE
    assert again.learner.profile() == known.learner.profile() != PROFILE
    assert [each.address for each in all_profiles()] == [ADDRESS]


def test_what_was_learned_of_an_older_measurement_is_dropped() -> None:
    save_profile(ADDRESS, PROFILE)
    known = find_known(ADDRESS)
    newer = Profile("measured", 0.01, (1,), (1e8,), 8)
    save_profile(ADDRESS, newer)
    assert not save_known(known)
    assert find_profile(ADDRESS) == newer


GOOD = {"version": 1, "address": ADDRESS, "profile": PROFILE.to_dict(), "learned": None, "points": []}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"version": 1}', b" " * (1 << 20) + b"{}"]
    + [
        json.dumps(GOOD | damage).encode()
        for damage in (
            {"version": 2}, {"address": "s3://other"}, {"profile": {}}, {"learned": 3}, {"points": [1]},
        )
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_once_and_left_alone(content) -> None:
    path = save_profile(ADDRESS, PROFILE)
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert find_profile(ADDRESS) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_profile(ADDRESS) is None
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_to_loses_only_what_was_learned(own_home) -> None:
    save_profile(ADDRESS, PROFILE)
    known = find_known(ADDRESS)
    # Also root cannot write into a folder that is a file.
    path = next((own_home / "profiles").iterdir())
    path.unlink()
    path.parent.rmdir()
    path.parent.write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert not save_known(known)
