"""Where references may lead: the own store, what the caller allows, nothing else."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import AccessError, HyperslabError, InvalidInputError, MetadataError
from hyperslab.store import LocalStore, locate
from hyperslab.store.routing import RoutedStore, place_of, route
from hyperslab.store.targets import parse_spot


def home(url="s3://home/refs.json", **options):
    return locate(url, {"anonymous": True, "region": "x", **options} if url.startswith("s3") else options or None)[0]


@pytest.mark.parametrize(
    ("url", "name", "key"),
    [
        ("s3://home/refs.json", "data/a.nc", "data/a.nc"),
        ("s3://home/refs.json", "s3://home/data/a.nc", "data/a.nc"),
        ("s3://home/refs.json", "s3a://home/data/a%20b.nc", "data/a%20b.nc"),
        ("memory://home/refs.json", "memory://home/a", "a"),
        ("https://host/x/refs.json", "https://HOST/y/a%20b.nc", "y/a b.nc"),
    ],
)
def test_the_own_store_may_be_led_to(url, name, key):
    store = home(url)
    assert place_of(store, name) == (store, key)


def test_files_below_the_own_directory_may_be_led_to(tmp_path):
    store = LocalStore(tmp_path)
    assert place_of(store, f"{tmp_path}/a/b.nc") == (store, "a/b.nc")
    assert place_of(store, f"file://{tmp_path}/a/b.nc") == (store, "a/b.nc")


@pytest.mark.parametrize(
    "name",
    ["s3://other/a", "s3://home2/a", "gs://home/a", "https://home/a", "http://169.254.169.254/latest", "/etc/passwd",
     "file:///etc/passwd", "memory://home/a", "s3://home"],
)  # fmt: skip
def test_others_are_not_followed_and_it_is_told_how(name):
    with pytest.raises(AccessError, match="'targets'"):
        place_of(home(), name)


@pytest.mark.parametrize("name", ["/tmpx/a", "/", "file:///etc/passwd", "s3://b/a", "https://h/a"])
def test_nothing_outside_of_a_directory_is_followed(name):
    with pytest.raises(AccessError, match="'targets'"):
        place_of(LocalStore("/tmp"), name)


@pytest.mark.parametrize(
    "name",
    ["../a", "a/../../b", "/tmp/../etc/passwd", "file:///tmp/%2e%2e/etc/passwd", "s3://home/../x", "a//b", "",
     "https://host/a/%2e%2e/b", "https://host/a/%252e%252e/b", "https://host/a%2fb", "https://me:pw@host/a",
     "https://host/a?token=1", "ftp://host/a", "simplecache::s3://home/a", "file://host/a", "a\0b", "file:a"],
)  # fmt: skip
def test_names_that_lead_upwards_or_nowhere_are_refused(name):
    with pytest.raises(HyperslabError) as caught:
        place_of(home("https://host/refs.json"), name)
    assert isinstance(caught.value, (MetadataError, AccessError))
    with pytest.raises(HyperslabError):
        place_of(LocalStore("/tmp"), name)


def test_what_is_allowed_is_followed_and_its_neighbours_are_not(tmp_path):
    store = home(targets=["s3://other/pre", str(tmp_path / "in"), "https://host/open"])
    assert place_of(store, "s3://other/pre/a")[1] == "pre/a"
    assert place_of(store, "s3://other/pre/a")[0].address == "s3://other"
    assert place_of(store, "https://host/open/a")[0].address == "https://host"
    local, key = place_of(store, f"{tmp_path}/in/x/y")
    assert (local.root, key) == (str(tmp_path / "in"), "x/y")
    for name in ("s3://other/prefix/a", "s3://other/a", "s3://others/pre/a", f"{tmp_path}/inner", f"{tmp_path}",
                 "https://host/opened", "http://host/open/a"):  # fmt: skip
        with pytest.raises(AccessError):
            place_of(store, name)


def test_targets_of_the_same_kind_take_the_own_options_but_never_a_web_servers():
    store = home(endpoint="http://127.0.0.1:9", targets=["s3://other"])
    assert place_of(store, "s3://other/a")[0].address == "s3://other?endpoint=127.0.0.1:9"
    own = {"s3://other": {"anonymous": True, "region": "y"}}
    assert place_of(home(endpoint="http://127.0.0.1:9", targets=own), "s3://other/a")[0].address == "s3://other"
    web = home("https://host/refs.json", token="hush", targets=["https://elsewhere"])
    assert "hush" not in str(pickle.dumps(place_of(web, "https://elsewhere/a")[0]))


def test_stores_keep_their_targets_when_they_are_pickled(tmp_path):
    for store in (home(targets=["s3://other"]), locate(tmp_path, {"targets": ["s3://other"]})[0]):
        again = pickle.loads(pickle.dumps(store))
        assert again.targets == store.targets
    assert home(targets=["s3://other"]) is home(targets=["s3://other"])
    assert home().targets is None


@pytest.mark.parametrize("targets", [3, [3], [""], {"s3://a": 3}, ["s3://"], ["ftp://a"], ["s3://a/../b"], [None]])
def test_targets_that_make_no_sense_are_refused(targets):
    with pytest.raises(InvalidInputError, match="target"):
        home(targets=targets)


def test_targets_may_be_given_in_a_text():
    assert [url for url, _ in home(targets="s3://a, s3://b/c").targets.allowed] == ["s3://a", "s3://b/c"]


def test_files_of_several_directories_are_one_store(tmp_path):
    store = locate(tmp_path, {"targets": ["/usr/share", "/usr/lib"]})[0]
    found, keys = route(store, ("/usr/share/a", "/usr/lib/b/c"))
    assert isinstance(found, LocalStore)
    assert (found.root, keys) == ("/usr", ["share/a", "lib/b/c"])


def test_several_stores_are_planned_as_one_that_is_far_away(tmp_path):
    store = locate(tmp_path, {"targets": {"s3://other": {"anonymous": True, "region": "y"}}})[0]
    found, keys = route(store, ("a.nc", "s3://other/a.nc"))
    assert isinstance(found, RoutedStore)
    assert (found.scheme, found.address) == ("s3", "s3://other")
    assert keys[1] == "s3://other/a.nc"
    assert len(set(keys)) == 2


words = st.text(max_size=9)
urls = st.builds("{}://{}/{}".format, st.sampled_from(["s3", "http", "file", "x"]), words, words)


@given(st.text(max_size=30) | urls)
def test_any_text_is_a_place_below_its_root_or_refused(name):
    try:
        spot = parse_spot(name)
    except MetadataError:
        return
    if spot is not None:
        assert not {"..", "."}.intersection(spot.path.split("/"))
