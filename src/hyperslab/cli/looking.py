"""`hyperslab info` and `hyperslab ls`: what is stored, without reading any of it."""

import json
from collections.abc import Iterator
from math import prod
from typing import Any

import click

import hyperslab as hs
from hyperslab.cli.opening import opened
from hyperslab.errors import HyperslabError
from hyperslab.layout import Decoder
from hyperslab.plan.phrases import say_bytes, say_count
from hyperslab.plan.render import Facts, Report, printable, shown_text

__all__ = ["array_facts", "attribute_facts", "group_facts", "show_info", "show_members"]

_MOST_ATTRIBUTES = 50
_LONGEST_VALUE = 300


def show_info(url: str, options: dict[str, Any]) -> None:
    """Print what the metadata at a URL says."""
    with opened(url, options) as found:
        facts = array_facts(found) if isinstance(found, hs.Array) else group_facts(found)
        parts = [Facts(tuple(facts)), Facts(tuple(attribute_facts(found)))]
        click.echo(shown_text(Report(printable(found.url), tuple(part for part in parts if part.pairs))))


def array_facts(array: hs.Array) -> Iterator[tuple[str, str]]:
    """Yield what there is to say about an array."""
    layout = array.source.layout
    yield "array", array.source.format
    yield "shape", str(array.shape)
    if array.dims is not None and any(array.dims):
        yield "axes", ", ".join(printable(name or "-") for name in array.dims)
    yield "dtype", str(array.dtype)
    yield "chunks", f"{array.chunks}, {say_bytes(layout.chunk_nbytes)} each; {say_count(prod(layout.grid), 'chunk')}"
    if array.shards is not None:
        yield "shards", f"{array.shards}, {say_count(prod(layout.chunks_per_object), 'chunk')} each"
    yield "encoding", _encoding(layout.decoder)
    yield "fill value", printable(str(array.fill_value))
    yield "size", f"{say_bytes(array.nbytes)} ({array.size:,} cells)"


def _encoding(decoder: Decoder | None) -> str:
    if decoder is None:
        return "plain: parts of a chunk can be read"
    return f"encoded: {printable(', '.join(decoder.names))}; chunks are read whole"


def group_facts(group: hs.Group) -> Iterator[tuple[str, str]]:
    """Yield what there is to say about a group."""
    yield "group", group.source.format
    if group.source.members is not None:
        yield "metadata", "consolidated: members are opened without asking again"
    names = list(group)
    yield "members", f"{len(names):,}" + (": " + ", ".join(map(printable, names[:20])) if names else "")


def attribute_facts(found: hs.Array | hs.Group) -> Iterator[tuple[str, str]]:
    """Yield the attributes, each in a few words."""
    attrs = dict(found.attrs)
    for name in list(attrs)[:_MOST_ATTRIBUTES]:
        value = printable(json.dumps(attrs[name], ensure_ascii=False, default=str))
        yield "@" + _clip(printable(str(name)), 30), _clip(value, _LONGEST_VALUE)
    if len(attrs) > _MOST_ATTRIBUTES:
        yield "@…", f"and {len(attrs) - _MOST_ATTRIBUTES:,} more attributes"


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def show_members(url: str, options: dict[str, Any], *, long: bool, depth: int) -> None:
    """Print the names below a group; an array is listed by itself."""
    with opened(url, options) as found:
        members = [(found.name, found)] if isinstance(found, hs.Array) else _below(found, "", depth)
        for name, member in members:
            slash = "/" if isinstance(member, hs.Group) else ""
            words = _long(member) if long or isinstance(member, HyperslabError) else ""
            click.echo(f"{printable(name) + slash:<24}  {words}".rstrip())


Member = hs.Array | hs.Group | HyperslabError


def _below(group: hs.Group, prefix: str, depth: int) -> Iterator[tuple[str, Member]]:
    for name in group:
        try:
            member: Member = group[name]
        except HyperslabError as error:
            # One that cannot be read must not hide the others.
            member = error
        yield prefix + name, member
        if isinstance(member, hs.Group) and depth > 1:
            yield from _below(member, f"{prefix}{name}/", depth - 1)


def _long(member: Member) -> str:
    if isinstance(member, HyperslabError):
        return f"cannot be read: {printable(str(member))}"
    if isinstance(member, hs.Group):
        return "group"
    shards = f" shards {member.shards}" if member.shards is not None else ""
    return f"{member.dtype} {member.shape} chunks {member.chunks}{shards} {say_bytes(member.nbytes)}"
