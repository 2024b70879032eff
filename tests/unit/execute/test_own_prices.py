"""A person's own price books: over the bundled ones, beside them, broken, and too old."""

import os
import warnings
from datetime import date, timedelta

import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.execute import own_prices
from hyperslab.execute.own_prices import (
    StalePricesWarning,
    all_books,
    find_prices,
    prices_for,
    stale_days,
    warn_if_stale,
)
from hyperslab.plan.prices import Prices

CONTRACT = """
provider = "aws"
dated = "2026-11-10"
source = "our contract"
egress.internet_gb_usd = 0.05
"""
CEPH = """
provider = "ceph"
dated = 2026-11-01
source = "the computing centre"
currency = "USD"
region = "cellar"
tier = "disk"
egress = { same_region_gb_usd = 0, other_region_gb_usd = 0, internet_gb_usd = 0.01 }
tiers.disk = { reads_usd = 0, puts_usd = 0 }
regions.cellar = {}
"""


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """Put a book into a folder of a person's own; returns its path."""
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path))
    monkeypatch.setattr(own_prices, "_warned", set())
    folder = tmp_path / "prices"
    folder.mkdir()

    def put(name, text):
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    return put


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("s3", "aws"), ("az", "azure"), ("gs", "google"), ("http", "free"), ("file", "free"), ("memory", "free")],
)
def test_the_scheme_says_whose_prices(scheme, name):
    assert prices_for(scheme, region=None, location=None, name=None) == Prices.named(name)


@pytest.mark.parametrize("scheme", ["s3", "az", "gs"])
def test_the_location_says_what_leaving_costs(scheme):
    same, other, internet = (
        prices_for(scheme, region=None, location=each, name=None)
        for each in ("same-region", "other-region", "internet")
    )
    assert 0 == same.byte_usd < other.byte_usd < internet.byte_usd
    assert internet == prices_for(scheme, region=None, location=None, name=None)


def test_a_region_is_used_if_the_book_has_it():
    known = prices_for("s3", region="eu-central-1", location=None, name=None)
    assert (known.region, known.name) == ("eu-central-1", "aws, eu-central-1")
    unknown = prices_for("s3", region="moon-1", location="same-region", name=None)
    assert unknown == Prices.named("aws-same-region")
    assert unknown.region == "us-east-1"


def test_a_name_goes_before_the_scheme():
    assert prices_for("s3", region=None, location=None, name="free") == Prices.named("free")
    assert prices_for("file", region=None, location=None, name="google") == Prices.named("google")
    assert prices_for("s3", region=None, location="other-region", name="azure").name == "azure-other-region"
    with pytest.raises(InvalidInputError, match="for a reader in another place than location='internet'"):
        prices_for("s3", region=None, location="internet", name="aws-same-region")
    with pytest.raises(InvalidInputError, match="no prices named 'moon'; there are free, aws, azure, google, and each"):
        prices_for("s3", region=None, location=None, name="moon")


def test_without_own_books_there_are_the_bundled_ones(keep):
    assert list(all_books()) == ["aws", "azure", "google"]
    assert all(kept.own is None for kept in all_books().values())


def test_an_own_book_lies_over_the_bundled_one(keep):
    path = keep("contract.toml", CONTRACT)
    mine, bundled = find_prices("aws"), Prices.named("aws")
    assert mine.byte_usd == pytest.approx(0.05e-9)
    assert (mine.request_usd, mine.put_usd, mine.function) == (bundled.request_usd, bundled.put_usd, bundled.function)
    assert (mine.dated, mine.source) == ("2026-11-10", "our contract")
    assert find_prices("aws-other-region").byte_usd == Prices.named("aws-other-region").byte_usd
    assert prices_for("s3", region=None, location=None, name=None) == mine
    assert all_books()["aws"].own == path
    assert find_prices("azure") == Prices.named("azure")
    assert Prices.named("aws") == bundled


def test_a_region_that_is_not_bundled_can_be_added(keep):
    keep("more.toml", CONTRACT + "[regions.moon-1]\nlabel = 'Moon'\ntiers.standard = { reads_usd = 0.1 }\n")
    moon = find_prices("aws", region="moon-1")
    assert (moon.request_usd, moon.byte_usd) == pytest.approx((0.0001, 0.05e-9))
    assert prices_for("s3", region="moon-1", location="same-region", name=None).region == "moon-1"


def test_an_own_provider_stands_by_itself(keep):
    keep("ceph.toml", CEPH)
    prices = find_prices("ceph")
    assert (prices.request_usd, prices.byte_usd, prices.dated) == (0.0, pytest.approx(0.01e-9), "2026-11-01")
    assert find_prices("ceph-same-region").byte_usd == 0.0
    assert prices_for("s3", region="us-east-1", location="same-region", name="ceph").region == "cellar"
    assert list(all_books()) == ["aws", "azure", "google", "ceph"]


def test_other_files_are_left_alone(keep):
    keep("notes.txt", "not TOML")
    keep("contract.toml~", "not TOML")
    assert list(all_books()) == ["aws", "azure", "google"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("provider = ", "is not TOML: Invalid value"),
        ('provider = "aws"', "dated is missing"),
        (CONTRACT + "egress.moon_gb_usd = 1", "egress.moon_gb_usd is not a key of a price book"),
        (CONTRACT + "currency = 'EUR'", "currency must be 'USD'"),
        (CONTRACT + "tiers.standard.reads_usd = -1", "tiers.standard.reads_usd must be a number from 0 on"),
        (CONTRACT + "tiers = 5", "tiers must be a table"),
        ("provider = ['aws']", "provider must be text"),
        ("a." * 900 + "b = 1", "provider is missing"),
        ("provider = 'aws'\n" + "a." * 900 + "b = 1", "it is no price book"),
    ],
    ids=range(9),
)
def test_a_broken_book_is_named_with_what_is_wrong(keep, text, said):
    path = keep("broken.toml", text)
    for ask in (lambda: find_prices("google"), all_books):
        with pytest.raises(InvalidInputError) as refused:
            ask()
        assert str(path) in str(refused.value)
        assert said in str(refused.value)
    assert prices_for("file", region=None, location=None, name=None).name == "free"


def test_what_is_not_a_file_with_text(keep, tmp_path):
    path = keep("book.toml", "")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match=r"book\.toml is not UTF-8"):
        find_prices("aws")
    path.write_bytes(b"#" * (1 << 18) + b"#")
    with pytest.raises(InvalidInputError, match=r"book\.toml is larger than 262,144 bytes"):
        find_prices("aws")
    path.unlink()
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)):
        make(path)
        with pytest.raises(InvalidInputError, match=r"book\.toml is not a file"):
            find_prices("aws")
        os.rmdir(path) if path.is_dir() else path.unlink()
    assert find_prices("aws") == Prices.named("aws")


def test_two_books_of_one_provider_are_refused(keep):
    one, two = keep("a.toml", CONTRACT), keep("b.toml", CONTRACT)
    with pytest.raises(InvalidInputError) as refused:
        find_prices("aws")
    assert f"{one} and {two} are both of 'aws'" in str(refused.value)


def test_old_prices_warn_once(keep):
    keep("ceph.toml", CEPH)
    later = date(2027, 11, 2)
    with pytest.warns(StalePricesWarning, match="prices of ceph are dated 2026-11-01, 366 days ago") as said:
        assert [find_prices(name, today=later).dated for name in ("ceph", "ceph-same-region")] == ["2026-11-01"] * 2
    assert len(said) == 1
    with pytest.warns(StalePricesWarning, match="prices of aws are dated 2026-11"):
        find_prices("aws", today=later)


def test_newer_prices_and_free_ones_do_not_warn(keep):
    keep("ceph.toml", CEPH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find_prices("ceph", today=date(2027, 11, 1))
        find_prices("free", today=date(2999, 1, 1))
        warn_if_stale(find_prices("aws", today=date(2026, 11, 16)), today=date(2026, 11, 16))


@pytest.mark.parametrize(("days", "stale"), [(-400, None), (0, None), (365, None), (366, 366), (4000, 4000)])
def test_how_old_is_too_old(days, stale):
    assert stale_days("2026-11-16", date(2026, 11, 16) + timedelta(days=days)) == stale


def test_prices_are_looked_up_without_reading_again(keep, monkeypatch):
    keep("contract.toml", CONTRACT)
    first = find_prices("aws")
    monkeypatch.setattr(own_prices, "read_toml", None)
    assert find_prices("aws") is first
