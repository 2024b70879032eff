"""Values of a tier: whatever bytes come back, they are the array's or no answer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.layout.checksums import crc32c
from hyperslab.store.keyvalue.values import HEADER_BYTES, Doubt, sealed, unsealed


def crc_of(data):
    return crc32c(np.frombuffer(data, np.uint8)) if data else 0


@given(st.binary(max_size=300))
def test_what_is_sealed_comes_back(data):
    value = sealed(data, crc_of(data))
    assert len(value) == HEADER_BYTES + len(data)
    found = unsealed(value, crc_of(data), len(data))
    assert bytes(found) == data
    assert found.readonly


@given(st.binary(max_size=100), st.data())
def test_a_changed_byte_is_seen(data, draw):
    value = bytearray(sealed(data, crc_of(data)))
    place = draw.draw(st.integers(0, len(value) - 1))
    value[place] ^= draw.draw(st.integers(1, 255))
    assert isinstance(unsealed(bytes(value), crc_of(data), len(data)), Doubt)


@given(st.binary(max_size=100), st.data())
def test_a_value_that_is_cut_off_or_goes_on(data, draw):
    value = sealed(data, crc_of(data))
    cut = value[: draw.draw(st.integers(0, len(value) - 1))]
    assert unsealed(cut, crc_of(data), len(data)) is Doubt.WRONG
    assert unsealed(value + b"\0", crc_of(data), len(data)) is Doubt.WRONG


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_another_version_is_stale(old, new):
    found = unsealed(sealed(old, crc_of(old)), crc_of(new), len(new))
    assert found is Doubt.STALE if old != new else bytes(found) == new


@given(st.binary(max_size=64))
def test_any_bytes_at_all(value):
    assert isinstance(unsealed(value, 7, 5), Doubt)
