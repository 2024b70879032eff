"""Prefix codes: frequent symbols in few bits. Canonical Huffman codes of at most twelve bits, lowest bit first.

A code is known by the lengths of its symbols alone. Symbols of one length get consecutive codes in their order, and the
shorter lengths come first, as in DEFLATE. A stream is filled from the lowest bit of each byte, and a code is written
from its highest bit on, so that a decoder that looks at the next twelve bits finds the symbol in a table.
"""

import heapq
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError

__all__ = ["MOST_BITS", "codes", "decode_table", "lengths_from_text", "lengths_of", "lengths_to_text"]

MOST_BITS = 12

Ints = npt.NDArray[np.int64]


def lengths_of(frequencies: Ints) -> Ints:
    """Return how many bits each symbol gets; symbols that never occur get none.

    >>> lengths_of(np.array([5, 1, 0, 1, 9])).tolist()
    [2, 3, 0, 3, 1]
    """
    used = np.flatnonzero(frequencies)
    lengths = np.zeros(len(frequencies), np.int64)
    if len(used) > 1 << MOST_BITS:
        raise ValueError(f"{len(used)} symbols do not fit in codes of {MOST_BITS} bits")
    if len(used) < 2:
        lengths[used] = 1
        return lengths
    depths = _depths([int(frequencies[symbol]) for symbol in used])
    # The most frequent symbols get the shortest codes, however the lengths had to be cut.
    by_frequency = used[np.argsort(-frequencies[used], kind="stable")]
    lengths[by_frequency] = _limited(depths)
    return lengths


def _depths(weights: list[int]) -> Ints:
    """Return how deep the leaves of a Huffman tree lie."""
    heap = [(weight, leaf) for leaf, weight in enumerate(weights)]
    heapq.heapify(heap)
    parents = [0] * (2 * len(weights) - 1)
    for node in range(len(weights), len(parents)):
        weight, one = heapq.heappop(heap)
        other_weight, other = heap[0]
        parents[one] = parents[other] = node
        heapq.heapreplace(heap, (weight + other_weight, node))
    depths = [0] * len(parents)
    for node in range(len(parents) - 2, -1, -1):
        depths[node] = depths[parents[node]] + 1
    return np.array(depths[: len(weights)], np.int64)


def _limited(depths: Ints) -> Ints:
    """Return lengths, ascending, of a complete code with none above the limit."""
    counts = np.bincount(np.minimum(depths, MOST_BITS), minlength=MOST_BITS + 1).tolist()
    excess = sum(count << (MOST_BITS - bits) for bits, count in enumerate(counts)) - (1 << MOST_BITS)
    while excess > 0:
        # One code of full length and one shorter make two that are one bit longer than the shorter.
        counts[MOST_BITS] -= 1
        shorter = next(bits for bits in range(MOST_BITS - 1, 0, -1) if counts[bits])
        counts[shorter] -= 1
        counts[shorter + 1] += 2
        excess -= 1
    return np.repeat(np.arange(MOST_BITS + 1), counts)


def codes(lengths: Ints) -> Ints:
    """Return the code of each symbol, with its first bit lowest.

    >>> [f"{code:0{n}b}"[::-1] for code, n in zip(codes(np.array([2, 1, 2])), [2, 1, 2])]
    ['10', '0', '11']
    """
    found = np.zeros(len(lengths), np.int64)
    order = np.flatnonzero(lengths)[np.argsort(lengths[lengths > 0], kind="stable")]
    steps = 1 << (MOST_BITS - lengths[order])
    aligned = np.cumsum(steps) - steps
    found[order] = _reversed(aligned)
    return found


def _reversed(words: Ints) -> Ints:
    """Return words of twelve bits with their bits in reverse."""
    turned = np.zeros_like(words)
    for bit in range(MOST_BITS):
        turned |= ((words >> bit) & 1) << (MOST_BITS - 1 - bit)
    return turned


@lru_cache(maxsize=256)
def decode_table(text: str) -> Ints:
    """Return, for all values of the next twelve bits, `symbol << 4 | length`; 0 where no code is."""
    lengths = lengths_from_text(text)
    order = np.flatnonzero(lengths)[np.argsort(lengths[lengths > 0], kind="stable")]
    entries = np.repeat(order << 4 | lengths[order], 1 << (MOST_BITS - lengths[order]))
    table = np.zeros(1 << MOST_BITS, np.int64)
    table[_reversed(np.arange(len(entries)))] = entries
    table.flags.writeable = False
    return table


def lengths_to_text(lengths: Ints) -> str:
    """Return lengths as text, one hexadecimal digit for each symbol.

    >>> lengths_to_text(np.array([2, 12, 0, 1, 0, 0]))
    '2c01'
    """
    return "".join("0123456789abcdef"[n] for n in lengths.tolist()).rstrip("0")


def lengths_from_text(text: str) -> Ints:
    """Return the lengths that a text holds, if a code can have them."""
    try:
        lengths = np.array([int(digit, 16) for digit in text], np.int64)
    except (ValueError, TypeError):
        raise MetadataError(f"{text!r:.60} are no lengths of a prefix code") from None
    if len(lengths) and (lengths.max() > MOST_BITS or (1 << (MOST_BITS - lengths[lengths > 0])).sum() > 1 << MOST_BITS):
        raise MetadataError(f"no prefix code has the lengths {text!r:.60}")
    return lengths
