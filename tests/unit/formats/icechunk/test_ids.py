"""Ids and the names that they have in a store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.formats.icechunk.ids import ID_BYTES, name_of, parse_id


@given(st.binary(min_size=ID_BYTES, max_size=ID_BYTES))
def test_names_lead_back_to_their_ids(identity):
    name = name_of(identity)
    assert len(name) == 20
    assert parse_id(name) == parse_id(name.lower()) == identity


@given(st.text(max_size=24))
def test_any_other_name_is_refused(text):
    try:
        identity = parse_id(text)
    except InvalidInputError:
        return
    assert name_of(identity) == text.upper()


@pytest.mark.parametrize("name", ["", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMT1", "1CECHNKREP0F1RSTCMTU", "../x"])
def test_names_that_are_almost_right(name):
    with pytest.raises(InvalidInputError, match="no snapshot's id"):
        parse_id(name)
