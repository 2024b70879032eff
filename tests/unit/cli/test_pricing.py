"""What `hyperslab prices` prints."""

import json
import re

import pytest

from hyperslab.cli.pricing import show_prices
from hyperslab.errors import InvalidInputError
from hyperslab.plan.prices import Prices


@pytest.fixture
def shown(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path))

    def show(**choices):
        show_prices(**choices)
        return capsys.readouterr().out

    return show


def rows(text):
    return {line.strip().split("  ")[0]: re.findall(r"\$[\d.]+", line) for line in text.splitlines() if ", " in line}


def test_all_books(shown, tmp_path):
    text = shown()
    assert [line for line in text.splitlines() if line in ("aws", "azure", "google")] == ["aws", "azure", "google"]
    assert max(map(len, text.splitlines())) <= max(100, len(str(tmp_path)) + 60)
    figures = rows(text)
    assert figures["us-east-1, standard"] == ["$0.0004", "$0.005", "$0", "$0.02", "$0.09"]
    assert figures["us-east-1, standard-ia"] == ["$0.001", "$0.01", "$0.01", "$0.03", "$0.1"]
    assert figures["eastus, hot"] == ["$0.00044", "$0.0055", "$0", "$0.02", "$0.087"]
    assert figures["us-central1, standard"] == ["$0.0004", "$0.005", "$0", "$0.02", "$0.12"]
    for said in (
        "dated       2026-11",
        "https://aws.amazon.com/s3/pricing/",
        "not verified",
        "$0.0000166667 a GB-second",
    ):
        assert said in text
    assert "answers up to 6.00 MB as base64, so 4.50 MB; streamed up to 200 MB, past 6.00 MB at" in text
    assert f"{tmp_path}/prices/*.toml" in text


def test_one_region_for_one_reader(shown):
    text = shown(provider="aws", region="eu-central-1", location="internet")
    assert rows(text)["eu-central-1, standard"] == ["$0.00043", "$0.0054", "$0.09"]
    assert "us-east-1, standard-ia" not in text
    assert "azure" not in text


def test_a_region_alone_finds_its_provider(shown):
    text = shown(region="westeurope")
    assert text.startswith("azure\n")
    assert "aws" not in text


def test_for_programs(shown):
    plain = json.loads(shown(as_json=True))
    assert list(plain) == ["aws", "azure", "google"]
    assert plain["aws"]["dated"] == "2026-11"
    assert plain["aws"]["own_book"] is None
    for provider, book in plain.items():
        tier = book["regions"][book["region"]]["tiers"][book["tier"]]
        prices = Prices.named(provider)
        assert (tier["request_usd"], tier["put_usd"]) == (prices.request_usd, prices.put_usd)
        assert tier["byte_usd"] == {
            each: Prices.of(provider, location=each).byte_usd for each in ("same-region", "other-region", "internet")
        }
        assert book["regions"][book["region"]]["function"]["call_usd"] == prices.function.call_usd


def test_own_books_are_shown_as_such(shown, tmp_path):
    (tmp_path / "prices").mkdir()
    path = tmp_path / "prices" / "mine.toml"
    path.write_text('provider = "aws"\ndated = "2020-01"\negress = { internet_gb_usd = 0.05, note = "a\\u001b[31m" }\n')
    text = shown(provider="aws")
    assert "own book" in text
    assert "2020-01: more than a year ago" in text
    assert rows(text)["us-east-1, standard"][-1] == "$0.05"
    assert "\x1b" not in text
    plain = json.loads(shown(provider="aws", as_json=True))["aws"]
    assert (plain["own_book"], plain["stale"]) == (str(path), True)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"provider": "moon"}, "no price book of 'moon'; there are aws, azure, google"),
        ({"region": "moon-1"}, "no price book has a region 'moon-1'"),
        ({"provider": "aws", "region": "eastus"}, "no price book has a region 'eastus'; there are us-east-1"),
        ({"location": "orbit"}, "one of same-region, other-region, internet, not 'orbit'"),
    ],
)
def test_what_there_is_not(shown, choices, said):
    with pytest.raises(InvalidInputError, match=said):
        shown(**choices)
