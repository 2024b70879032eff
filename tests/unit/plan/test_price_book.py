"""Price books: the bundled ones parse, and no other text does anything but parse or say what is wrong."""

import copy
import tomllib
from datetime import UTC, date, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.plan.price_book import (
    PROVIDERS,
    PriceBook,
    bundled_book,
    bundled_text,
    day_of,
    laid_over,
    parse_book,
    read_toml,
)

SMALL = """
provider = "moon"
dated = 2026-11-30
source = "https://moon.example/prices"
currency = "USD"
region = "crater-1"
tier = "dust"

[egress]
same_region_gb_usd = 0
other_region_gb_usd = 0.01
internet_gb_usd = 0.5

[tiers.dust]
reads_usd = 0.002
puts_usd = 0.004

[regions.crater-1]

[regions.crater-2]
label = "The far side"
egress.internet_gb_usd = 0.9
tiers.dust = { reads_usd = 0.003 }
tiers.rock = { reads_usd = 1, puts_usd = 1, retrieval_gb_usd = 0.25 }
"""
FUNCTION = {
    "calls_million_usd": 0.2, "gb_second_usd": 1e-5, "timeout_s": 60,
    "memory_mb": 512, "memory_least_mb": 128, "memory_most_mb": 1024, "memory_step_mb": 1,
}  # fmt: skip


def small():
    return tomllib.loads(SMALL)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_bundled_books_parse(provider):
    book = bundled_book(provider)
    assert book is bundled_book(provider)
    assert (book.provider, book.dated, book.currency) == (provider, "2026-11", "USD")
    assert book.source.startswith("https://")
    assert len(book.regions) >= 3
    for region in book.regions.values():
        assert region.label
        assert region.function is not None
        assert region.function.source.startswith("https://")
        assert region.function.service


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_not_verified_says_why(provider):
    for region in bundled_book(provider).regions.values():
        for part in (region.egress, *region.tiers.values(), region.function):
            assert part.verified or part.note


def test_regions_have_what_holds_everywhere_unless_they_say_otherwise():
    book = parse_book(small(), "moon.toml")
    near, far = book.regions["crater-1"], book.regions["crater-2"]
    assert (near.label, far.label) == ("", "The far side")
    assert near.egress.to("internet") == pytest.approx(0.5e-9)
    assert [far.egress.to(each) for each in ("same-region", "other-region", "internet")] == pytest.approx(
        [0.0, 0.01e-9, 0.9e-9]
    )
    assert list(near.tiers) == ["dust"]
    assert list(far.tiers) == ["dust", "rock"]
    assert (near.tiers["dust"].read_usd, near.tiers["dust"].put_usd) == pytest.approx((2e-6, 4e-6))
    assert (far.tiers["dust"].read_usd, far.tiers["dust"].put_usd) == pytest.approx((3e-6, 4e-6))
    assert near.function is None
    assert book.dated == "2026-11-30"
    assert book.look_up("crater-2", "rock") == (far, far.tiers["rock"])


def test_requests_are_priced_by_as_many_as_the_book_says():
    values = {**small(), "per_requests": 10_000}
    assert parse_book(values, "moon.toml").look_up()[1].read_usd == pytest.approx(2e-7)


def test_a_region_may_have_a_function_of_its_own():
    values = {**small(), "function": FUNCTION}
    values["regions"]["crater-2"]["function"] = {"gb_second_usd": 3e-5}
    book = parse_book(values, "moon.toml")
    near, far = book.regions["crater-1"].function, book.regions["crater-2"].function
    assert (near.gb_second_usd, far.gb_second_usd) == (1e-5, 3e-5)
    assert near.memory_mb == far.memory_mb == 512


WRONG = [
    ("provider", 3, "provider must be text, not 3"),
    ("provider", "Moon!", "provider must be small letters"),
    ("provider", "free", "must not be 'free'"),
    ("provider", "moon-same-region", "must not be 'free' or end in"),
    ("provider", "a" * 100, "provider must be small letters"),
    ("dated", "soon", "dated must be a date like 2026-11-30, not 'soon'"),
    ("dated", "2026-13", "dated must be a date"),
    ("dated", "20261130", "dated must be a date"),
    ("dated", 2026, "dated must be a date"),
    ("dated", datetime(2026, 11, 30, tzinfo=UTC), "dated must be a date"),
    ("currency", "EUR", "currency must be 'USD', not 'EUR'"),
    ("region", "crater-9", "region must be one that the book has"),
    ("tier", "lava", "tier must be one that the book has"),
    ("tier", "rock", "tier must be one that the book has"),
    ("per_requests", 0, "per_requests must be a whole number from 1 on, not 0"),
    ("per_requests", 1.5, "per_requests must be a whole number"),
    ("per_requests", True, "per_requests must be a whole number"),
    ("egress", [], "egress must be a table, not a list"),
    ("egress.same_region_gb_usd", -0.01, "egress.same_region_gb_usd must be a number from 0 on, not -0.01"),
    ("egress.internet_gb_usd", float("nan"), "must be a number from 0 on, not nan"),
    ("egress.internet_gb_usd", float("inf"), "must be a number from 0 on, not inf"),
    ("egress.internet_gb_usd", 10**400, "must be a number from 0 on"),
    ("egress.internet_gb_usd", True, "must be a number from 0 on, not True"),
    ("egress.internet_gb_usd", "0.09", "must be a number from 0 on, not '0.09'"),
    ("egress.verified", "yes", "egress.verified must be true or false, not 'yes'"),
    ("egress.note", 7, "egress.note must be text"),
    ("egress.moon_gb_usd", 1, "egress.moon_gb_usd is not a key of a price book; known here are internet_gb_usd, "),
    ("tiers", {}, "tiers has no table in it"),
    ("tiers.dust", 5, "tiers.dust must be a table"),
    ("tiers.dust.read_usd", 5, "tiers.dust.read_usd is not a key of a price book"),
    ("tiers.dust.puts_usd", None, "tiers.dust.puts_usd is missing"),
    ("tiers.D D", {}, "must have a name of small letters|reads_usd is missing"),
    ("regions", {}, "regions has no table in it"),
    ("regions", None, "regions is missing"),
    ("regions.crater-1.prices", 3, "regions.crater-1.prices is not a key"),
    ("discount", 0.1, "discount is not a key of a price book"),
    ("function", {"calls_million_usd": 1}, "function.gb_second_usd is missing"),
    ("function", {**FUNCTION, "memory_mb": 1.5}, "function.memory_mb must be a whole number"),
    ("function", {**FUNCTION, "memory_mb": 4096}, "function: a function's memory lies between"),
    ("function", {**FUNCTION, "step_ms": 0}, "function: a function is billed by steps above 0"),
    ("function", {**FUNCTION, "cpus": [[1]]}, "function.cpus must be a list of"),
    ("function", {**FUNCTION, "cpus": [[1.5, 1]]}, "function.cpus.memory must be a whole number"),
    ("function", {**FUNCTION, "cpus": [[2, 1], [1, 1]]}, "listed by ascending memory"),
    ("function", {**FUNCTION, "reply_base64": 1}, "function.reply_base64 must be true or false"),
    ("function", {**FUNCTION, "reply_bytes": -1}, "function.reply_bytes must be a whole number"),
    ("a\x1b[31m", 1, r"a\\x1b\[31m is not a key"),
]


@pytest.mark.parametrize(
    ("key", "value", "said"), WRONG, ids=[f"{key[:20]!r} {number}" for number, (key, *_) in enumerate(WRONG)]
)
def test_wrong_books_are_refused_with_file_and_key(key, value, said):
    values = small()
    *path, last = key.split(".") if "\x1b" not in key else [key]
    table = reduce(dict.__getitem__, path, values)
    if value is None:
        del table[last]
    else:
        table[last] = value
    with pytest.raises(InvalidInputError, match=said) as refused:
        parse_book(values, "my/moon.toml")
    assert str(refused.value).startswith("price book my/moon.toml: ")
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("missing", ["provider", "dated", "source", "currency", "region", "tier", "egress", "tiers"])
def test_what_a_book_must_have(missing):
    values = small()
    del values[missing]
    with pytest.raises(InvalidInputError, match=r"price book b: .*is missing|price book b: .*egress"):
        parse_book(values, "b")


HOSTILE = [
    "provider = ",
    "a = 1\na = 2",
    "x = " + "[\n" * 20_000,
    "x = " + "9" * 1_900,
    "x = " + "9" * 10_000,
    ".".join(["a"] * 900) + " = 1",
    ".".join(["a"] * 500_000) + " = 1",
    "[regions." + ".".join(["a"] * 900) + "]",
    SMALL + "[regions.crater-1." + ".".join(["a"] * 900) + "]\nx = 1",
    SMALL + "#\n" * 40_000,
    "\x00",
    "a" * 2_000_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_refused_in_words(text):
    with pytest.raises(InvalidInputError, match=r"price book b\.toml") as refused:
        parse_book(laid_over({}, read_toml(text, "b.toml"), "b.toml"), "b.toml")
    assert len(str(refused.value)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(values, before=()):
    for key, value in values.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


PATHS = sorted(paths({**small(), "function": FUNCTION}))


@given(st.sampled_from(PATHS), JSON)
@example(("regions",), {"": {}})
def test_any_value_in_any_place_parses_or_is_refused(path, value):
    values = copy.deepcopy({**small(), "function": dict(FUNCTION)})
    reduce(dict.__getitem__, path[:-1], values)[path[-1]] = value
    said = "price book b.toml"
    try:
        found = parse_book(values, "b.toml")
    except InvalidInputError as refused:
        said = str(refused)
    else:
        assert isinstance(found, PriceBook)
    assert said.startswith("price book b.toml")


@given(st.text())
def test_any_text_parses_or_is_refused(text):
    with pytest.raises(InvalidInputError, match=r"price book b\.toml"):
        parse_book(read_toml(text, "b.toml"), "b.toml")


def test_what_lies_over_a_book_goes_first_and_loses_the_remarks():
    base = read_toml(bundled_text("aws"), "aws")
    own = {"dated": "2026-12", "tiers": {"standard": {"reads_usd": 0.0003}}, "egress": {"note": "as agreed"}}
    book = parse_book(laid_over(base, own, "own.toml"), "own.toml")
    region, tier = book.look_up()
    assert tier.read_usd == pytest.approx(3e-7)
    assert tier.put_usd == bundled_book("aws").look_up()[1].put_usd
    assert (tier.verified, tier.note) == (True, "")
    assert (region.egress.verified, region.egress.note) == (True, "as agreed")
    assert not region.tiers["standard-ia"].verified
    assert base == read_toml(bundled_text("aws"), "aws")


@given(st.dates(date(1000, 1, 1)))
def test_days_are_read_as_they_are_written(day):
    assert day_of(day.isoformat()) == day
    month = day_of(day.isoformat()[:7])
    assert timedelta() <= day - month < timedelta(days=31)


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-1", "2026-00", "2026-02-30", "2026-11-30T00:00", " 2026-11", "２０２６-11"]
)
def test_days_that_there_are_not(text):
    with pytest.raises(InvalidInputError, match="dated like 2026-11"):
        day_of(text)
