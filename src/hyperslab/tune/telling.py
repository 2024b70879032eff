"""Advice in words and figures."""

from math import isinf, prod
from typing import Any

from hyperslab.plan.phrases import say_bytes, say_count, say_phi, say_seconds, say_usd
from hyperslab.plan.render import Facts, Report, Table, printable
from hyperslab.tune.advice import Change, Compared, Findings
from hyperslab.tune.figures import Means
from hyperslab.tune.forms import Form
from hyperslab.tune.several import Several

__all__ = ["report_of", "values_of"]

_HEADING = ("", "chunks", "requests", "fetched", "seconds", "dollars")


def report_of(findings: Findings, url: str, reads: int, held_out: int) -> Report:
    """Return what is printed."""
    facts = [
        ("array", f"{findings.shape}, cells of {say_count(findings.itemsize, 'byte')}"),
        ("reads", f"{reads:,}" + (f", and {held_out:,} held out" if held_out else "")),
        ("store", f"profile {findings.model.profile.name}, prices {findings.model.prices.name}"),
        ("weighed by", _weighed_by(findings)),
        ("now", say_form(findings.now, findings.itemsize)),
        ("advice", _advice(findings)),
    ]
    parts: list[Facts | Table] = [Facts(tuple(facts)), _table(findings)]
    if not findings.keep:
        parts.append(Facts(tuple(_change_facts(findings))))
    if findings.several is not None:
        parts.append(Facts(tuple(_several_facts(findings.several, findings.itemsize))))
    return Report(f"Layout of {printable(url)}", tuple(parts))


def _weighed_by(findings: Findings) -> str:
    """Say what counts; where only dollars do and nothing has a price, that is time."""
    free = isinf(findings.model.phi) and not findings.trained.now.usd and not findings.trained.best.usd
    return say_phi(findings.model.phi) + ("; here nothing has a price, so time decides" if free else "")


def say_form(form: Form, itemsize: int) -> str:
    """Write a form.

    >>> say_form(Form((8, 8), (64, 64)), 4)
    'chunks (8, 8) of 256 B, in shards (64, 64) of 16.4 KB'
    """
    size = say_bytes(prod(form.chunks) * itemsize)
    kind = "plain chunks" if form.plain else "chunks"
    if form.shards is None:
        return f"{kind} {form.chunks} of {size}, an object each"
    return f"{kind} {form.chunks} of {size}, in shards {form.shards} of {say_bytes(prod(form.objects) * itemsize)}"


def _advice(findings: Findings) -> str:
    if findings.keep:
        return "stay as it is: no other form is better by a margin"
    told = findings.held_out or findings.trained
    return f"{say_form(findings.best, findings.itemsize)}: reads cost {_times(told.times)} less"


def _times(times: float) -> str:
    return f"{times:.1f} times" if times < 10 else f"{times:,.0f} times"


def _table(findings: Findings) -> Table:
    rows = [("now", *_figures(findings.trained.now))]
    if not findings.keep:
        rows.append(("advised", *_figures(findings.trained.best)))
    if findings.held_out is not None:
        rows.append(("now, reads held out", *_figures(findings.held_out.now)))
        if not findings.keep:
            rows.append(("advised, reads held out", *_figures(findings.held_out.best)))
    return Table(("a read, on average", *_HEADING[1:]), tuple(rows), None if findings.keep else 1)


def _figures(means: Means) -> tuple[str, ...]:
    return (
        f"{means.chunks:,.1f}", f"{means.requests:,.1f}", say_bytes(round(means.fetched_bytes)),
        say_seconds(means.seconds), say_usd(means.usd),
    )  # fmt: skip


def _change_facts(findings: Findings) -> list[tuple[str, str]]:
    change, after = findings.change, findings.pays_after_reads
    moved = f"{say_bytes(round(change.read_bytes))} read, {say_bytes(round(change.written_bytes))} written"
    cost = f"{say_seconds(change.seconds)}, {say_usd(change.usd)}"
    paid = "never, at this rate" if isinf(after) else f"after {say_count(max(1, round(after)), 'read')}"
    return [("the change", f"{moved} as {say_count(change.objects, 'object')}: about {cost}"), ("has paid", paid)]


def _several_facts(several: Several, itemsize: int) -> list[tuple[str, str]]:
    found = [
        (f"form {number}", f"{say_form(form, itemsize)}: {share:.0%} of the reads")
        for number, (form, share) in enumerate(zip(several.forms, several.shares, strict=True), 1)
    ]
    held_out = "" if several.held_out_times is None else f" ({_times(several.held_out_times)} on reads held out)"
    gain = f"reads cost {_times(several.times)} less than in the best single form{held_out}"
    spared = ((say_seconds, several.spared_seconds), (say_usd, several.spared_usd))
    reads = " and ".join(f"{say(abs(1000 * each))} {'less' if each >= 0 else 'more'}" for say, each in spared)
    pays = f"if it is worth storing {say_bytes(round(several.more_bytes))} more that 1,000 reads take {reads}"
    return [*found, ("together", f"{gain}; {say_bytes(round(several.stored_bytes))} are stored"), ("pays", pays)]


def values_of(findings: Findings, url: str, reads: int, held_out: int) -> dict[str, Any]:
    """Return advice as plain values, ready for JSON."""
    after = findings.pays_after_reads
    return {
        "url": url,
        "shape": list(findings.shape),
        "reads": reads,
        "held_out_reads": held_out,
        "profile": findings.model.profile.name,
        "prices": findings.model.prices.name,
        "phi": None if isinf(findings.model.phi) else findings.model.phi,
        "keep": findings.keep,
        "now": _form_values(findings.now),
        "best": _form_values(findings.best),
        "trained": _compared_values(findings.trained),
        "held_out": None if findings.held_out is None else _compared_values(findings.held_out),
        "change": _values(findings.change),
        "pays_after_reads": None if isinf(after) else after,
        "several": None if findings.several is None else _several_values(findings.several),
    }


def _form_values(form: Form) -> dict[str, Any]:
    shards = None if form.shards is None else list(form.shards)
    return {"chunks": list(form.chunks), "shards": shards, "layout": "plain" if form.plain else "default"}


def _compared_values(compared: Compared) -> dict[str, Any]:
    return {"now": _values(compared.now), "best": _values(compared.best), "times": compared.times}


def _several_values(several: Several) -> dict[str, Any]:
    return {
        "forms": [_form_values(form) for form in several.forms],
        "shares": list(several.shares),
        "times": several.times,
        "held_out_times": several.held_out_times,
        "spared_seconds": several.spared_seconds,
        "spared_usd": several.spared_usd,
        "stored_bytes": several.stored_bytes,
        "more_bytes": several.more_bytes,
    }


def _values(value: Means | Change) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
