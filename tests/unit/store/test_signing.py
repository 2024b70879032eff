"""Signatures: who changed anything, came late, or has no key, is refused."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import AccessError, InvalidInputError
from hyperslab.store.signing import MOST_LIFETIME_S, SigningKey, sign, verify

KEY = SigningKey("me", b"k" * 32)
OTHER = SigningKey("you", b"o" * 32)
KEYS = {key.id: key for key in (KEY, OTHER)}
NONCE = "n" * 22
BODY = b'{"a": 1}'


def headers(**changed):
    return {**sign(KEY, BODY, now=1000.0, nonce=NONCE), **changed}


def test_a_signed_request_is_known():
    assert verify(KEYS, headers(), BODY, now=1000.0) == ("me", NONCE, 1060)


def test_the_signature_is_what_the_format_says():
    """Another program must be able to sign: the text that is signed is fixed."""
    import hashlib
    import hmac

    text = "\n".join(["hyperslab-call-1", "me", NONCE, "1060", hashlib.sha256(BODY).hexdigest()])
    made = hmac.new(KEY.secret, text.encode(), hashlib.sha256).hexdigest()
    assert headers()["x-hyperslab-signature"] == made


@given(st.binary(max_size=40).filter(lambda body: body != BODY))
def test_another_body_is_refused(body):
    with pytest.raises(AccessError, match="does not fit"):
        verify(KEYS, headers(), body, now=1000.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", "you"), ("nonce", "m" * 22), ("expires", "1061"), ("signature", "0" * 64)],
)
def test_a_changed_header_is_refused(name, value):
    with pytest.raises(AccessError, match="does not fit"):
        verify(KEYS, headers(**{f"x-hyperslab-{name}": value}), BODY, now=1000.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", ""), ("key", "a b"), ("key", "x" * 65), ("nonce", "short"), ("nonce", "n\n" * 11), ("nonce", "é" * 20),
        ("expires", "-1"), ("expires", "1e3"), ("expires", "١٠٦٠"), ("expires", "9" * 13), ("signature", "Z" * 64),
        ("signature", "0" * 63), ("signature", "0" * 65),
    ],
)  # fmt: skip
def test_a_header_out_of_form_is_refused(name, value):
    with pytest.raises(AccessError, match="not well formed"):
        verify(KEYS, headers(**{f"x-hyperslab-{name}": value}), BODY, now=1000.0)


@given(st.dictionaries(st.sampled_from(sorted(headers())), st.text(max_size=70)))
def test_any_headers_are_refused_in_our_words(given):
    with pytest.raises(AccessError):
        verify(KEYS, given, BODY, now=1000.0)


def test_unsigned_and_unknown_are_refused():
    with pytest.raises(AccessError, match="not signed"):
        verify(KEYS, {}, BODY, now=1000.0)
    with pytest.raises(AccessError, match="does not fit"):
        verify({}, headers(), BODY, now=1000.0)
    # Not even a secret of zeros, which stands in for unknown keys.
    zeros = sign(SigningKey("them", bytes(32)), BODY, now=1000.0, nonce=NONCE)
    with pytest.raises(AccessError, match="does not fit"):
        verify(KEYS, zeros, BODY, now=1000.0)


def test_time():
    assert verify(KEYS, headers(), BODY, now=1060.0)
    for now in (1060.1, 5000.0, 1060 - MOST_LIFETIME_S - 2):
        with pytest.raises(AccessError, match="expired"):
            verify(KEYS, headers(), BODY, now=now)


@pytest.mark.parametrize("lifetime_s", [0, -1, MOST_LIFETIME_S + 1, float("nan")])
def test_a_lifetime_that_no_function_accepts(lifetime_s):
    with pytest.raises(InvalidInputError):
        sign(KEY, BODY, now=0.0, nonce=NONCE, lifetime_s=lifetime_s)


def test_keys():
    made = SigningKey.new("lab")
    assert SigningKey.parse(made.text) == made
    assert len(made.secret) == 32
    assert SigningKey.new("lab") != made
    assert made.secret.hex() not in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("text", ["", "x", ":00", "a:", "a:xyz", "a:0", "a b:" + "00" * 16, "a:" + "00" * 15])
def test_bad_keys_are_refused_and_not_shown(text):
    with pytest.raises(InvalidInputError) as caught:
        SigningKey.parse(text)
    secret = text.partition(":")[2]
    assert not secret or secret not in str(caught.value)
