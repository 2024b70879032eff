"""Ids of stored objects: bytes, and the names that they have in a store."""

from hyperslab.errors import InvalidInputError

__all__ = ["ID_BYTES", "NODE_ID_BYTES", "name_of", "parse_id"]

ID_BYTES = 12
NODE_ID_BYTES = 8

# Crockford's base 32: no I, L, O or U.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}


def name_of(identity: bytes) -> str:
    """Return the name under which the object with an id is stored.

    >>> name_of(bytes.fromhex("0b1cc8d6787580f0e33a6534"))
    '1CECHNKREP0F1RSTCMT0'
    """
    bits = 8 * len(identity)
    count = -(-bits // 5)
    value = int.from_bytes(identity, "big") << (5 * count - bits)
    return "".join([_DIGITS[value >> 5 * place & 31] for place in reversed(range(count))])


def parse_id(name: str) -> bytes:
    """Return the id of a snapshot, by its name as people write it: capitals or not.

    >>> parse_id("1cechnkrep0f1rstcmt0").hex()
    '0b1cc8d6787580f0e33a6534'
    """
    bits = 8 * ID_BYTES
    count = -(-bits // 5)
    values = [_VALUES.get(digit) for digit in name.upper()]
    if len(values) != count or None in values:
        raise InvalidInputError(f"{name[:40]!r} is no snapshot's id; expected {count} digits and letters")
    whole = 0
    for value in values:
        whole = whole << 5 | (value or 0)
    spare = 5 * count - bits
    if whole & (1 << spare) - 1:
        raise InvalidInputError(f"{name!r} is no snapshot's id: its last digit says more than one has")
    return (whole >> spare).to_bytes(ID_BYTES, "big")
