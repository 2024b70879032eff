"""The log of a Delta table, read by planned requests: which files are part of a version.

A version is a checkpoint (a Parquet file) and the commits after it (a JSON file each). One listing tells which there
are, then all that are needed are fetched at once. Commits never change, so that what was made of them is kept by the
session. Where a log has what is not read here (checkpoints of the second kind), delta-rs is asked.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperslab.errors import ConflictError, MetadataError, NotFoundError, UnsupportedError
from hyperslab.execute.file import send_lookups
from hyperslab.execute.run import Job
from hyperslab.execute.write import StoreWriter
from hyperslab.store import Listed, LocalStore, Reply
from hyperslab.tensors.delta import open_delta
from hyperslab.tensors.place import Place, file_name

__all__ = ["TOKEN", "DataFile", "Log", "Version", "fetch_parts", "read_log", "read_version"]

# What a commit of ours is told by, beside its other information.
TOKEN = "hyperslab.token"

# What some editors write before a text in UTF-8.
_MARK = b"\xef\xbb\xbf"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
# Features of tables that decide what their files mean.
_READER_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "typeWidening-preview"})


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table, as the log describes it. `stats` is JSON, None if there are none."""

    path: str
    nbytes: int
    modified_ms: int
    stats: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version of a table: its columns by name with their types, its files by path.

    `tokens` are those of commits that were read one by one, with the version that each made: all from `told_from` on.
    """

    number: int
    columns: Mapping[str, Any]
    files: Mapping[str, DataFile]
    tokens: Mapping[str, int]
    told_from: int


@dataclass(frozen=True, slots=True)
class Log:
    """What a listing of the log shows: commits by version, and checkpoints as the files that each consists of."""

    commits: Mapping[int, Listed]
    checkpoints: Mapping[int, tuple[Listed, ...]]

    @property
    def latest(self) -> int | None:
        """The latest version; None where there is no table."""
        return max((*self.commits, *self.checkpoints), default=None)

    def at(self, timestamp_ns: int) -> int:
        """Return the version that was the latest at some time, by the store's clock."""
        before = [number for number, listed in self.commits.items() if listed.modified_ns <= timestamp_ns]
        if not before:
            raise NotFoundError("the table has no version that old, or its log does not reach back to it any more")
        return max(before)


def read_log(place: Place) -> Log:
    """List the log."""
    folder = place.key("_delta_log/")
    commits: dict[int, Listed] = {}
    parts: dict[int, list[Listed]] = {}
    wanted: dict[int, int] = {}
    for listed in StoreWriter(place.session, place.store).listing(folder):
        name = listed.key.removeprefix(folder)
        if found := _COMMIT.fullmatch(name):
            commits[int(found[1])] = listed
        elif found := _CHECKPOINT.fullmatch(name):
            parts.setdefault(int(found[1]), []).append(listed)
            wanted[int(found[1])] = int(found[3] or 1)
    whole = {number: tuple(found) for number, found in parts.items() if len(found) == wanted[number]}
    return Log(commits, whole)


def read_version(place: Place, log: Log, number: int, known: Version | None = None) -> Version:
    """Return one version of a table; `known` is an earlier one that may save reading."""
    start = max((each for each in log.checkpoints if each <= number), default=None)
    base, first = None, 0 if start is None else start + 1
    # Commit by commit, also past a checkpoint: it would not tell whose they were.
    if (
        known is not None
        and known.number <= number
        and all(each in log.commits for each in range(known.number + 1, number + 1))
    ):
        base, first = known, known.number + 1
    if base is not None and base.number == number:
        return base
    commits = [log.commits.get(each) for each in range(first, number + 1)]
    if None in commits:
        return _by_delta(place, number)
    checkpoint = log.checkpoints[start] if base is None and start is not None else ()
    found = _fetch(place, [*checkpoint, *(each for each in commits if each is not None)])
    replay = _Replay(base, first)
    for listed in checkpoint:
        replay.actions(found[listed.key])
    for each, commit in enumerate(commits, first):
        if commit is not None:
            replay.commit(each, found[commit.key])
    return replay.version(number)


class _Replay:
    """Actions of a log, one after the other, from a version on."""

    def __init__(self, base: Version | None, first: int) -> None:
        self.told_from = first if base is None else base.told_from
        self.files = {} if base is None else dict(base.files)
        self.tokens = {} if base is None else dict(base.tokens)
        self.columns = None if base is None else base.columns

    def actions(self, actions: Iterable[dict[str, Any]]) -> None:
        removed, added = [], []
        for action in actions:
            if found := action.get("add"):
                added.append(_data_file(found))
            elif found := action.get("remove"):
                removed.append(file_name(found["path"]))
            elif found := action.get("metaData"):
                self.columns = _columns(found)
            elif found := action.get("protocol"):
                _check_protocol(found)
        for path in removed:
            self.files.pop(path, None)
        for file in added:
            self.files[file.path] = file

    def commit(self, number: int, actions: Iterable[dict[str, Any]]) -> None:
        actions = list(actions)
        self.actions(actions)
        for action in actions:
            token = (action.get("commitInfo") or {}).get(TOKEN)
            if isinstance(token, str):
                self.tokens[token] = number

    def version(self, number: int) -> Version:
        if self.columns is None:
            raise MetadataError("the table's log has no schema; it is damaged, or not all of it is there")
        return Version(number, self.columns, self.files, self.tokens, self.told_from)


def _data_file(add: Mapping[str, Any]) -> DataFile:
    if add.get("deletionVector"):
        raise UnsupportedError(f"file {add['path']!r} has rows deleted by a deletion vector, which are not read here")
    return DataFile(file_name(add["path"]), int(add["size"]), int(add["modificationTime"]), add.get("stats"))


def _columns(metadata: Mapping[str, Any]) -> dict[str, Any]:
    configuration = dict(metadata.get("configuration") or {})
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise UnsupportedError("the table maps its columns to other names, which is not read here")
    return {field["name"]: field["type"] for field in json.loads(metadata["schemaString"])["fields"]}


def _check_protocol(protocol: Mapping[str, Any]) -> None:
    needed = set(protocol.get("readerFeatures") or ())
    version = int(protocol.get("minReaderVersion") or 1)
    if version == 2:
        needed.add("columnMapping")
    # Column mapping alone is no harm: whether it is used is said elsewhere.
    unknown = needed - _READER_FEATURES - {"columnMapping", "deletionVectors"}
    if version > 3 or unknown:
        raise UnsupportedError(
            f"the table wants readers of version {version} with {', '.join(sorted(unknown)) or 'more'}, not known here"
        )


def _fetch(place: Place, wanted: list[Listed]) -> dict[str, list[dict[str, Any]]]:
    """Return the actions of commits and checkpoints by their keys."""
    kept, address = place.session.indexes, place.store.address
    found: dict[str, list[dict[str, Any]]] = {}
    for listed in wanted:
        actions = kept.get((address, listed.key, listed.version))
        if actions is not None:
            found[listed.key] = actions
    missing = [listed for listed in wanted if listed.key not in found]
    replies = fetch_parts(place, [(listed.key, (0, listed.nbytes)) for listed in missing if listed.nbytes], _gone)
    for listed in missing:
        data = replies[listed.key].data if listed.nbytes else memoryview(b"")
        actions = found[listed.key] = _parse(listed.key, data)
        kept.put((address, listed.key, listed.version), actions, 2 * listed.nbytes)
    return found


def _gone(key: str) -> ConflictError:
    return ConflictError(f"{key!r} is gone: the table's log was cleaned up meanwhile; open the table again")


def fetch_parts(
    place: Place, wanted: Sequence[tuple[str, tuple[int, int]]], gone: Callable[[str], Exception]
) -> dict[str, Reply]:
    """Fetch parts of objects, remote ones together; `gone` makes the error for the key of one that is not there."""
    replies: dict[str, Reply | None] = {}
    if isinstance(place.store, LocalStore):
        # One after the other: threads would take longer.
        writer = StoreWriter(place.session, place.store)
        replies.update({key: writer.get(key, span, lookup=True) for key, span in wanted})
    else:
        jobs = [Job(-1, key, span, span[1] - span[0], lookup=True) for key, span in wanted]
        send_lookups(place.session, place.store, jobs, lambda job, reply: replies.update({job.key: reply}), _ignore)
    for key, _ in wanted:
        if replies.get(key) is None:
            raise gone(key)
    return {key: reply for key, reply in replies.items() if reply is not None}


def _ignore(job: Job) -> None:
    return None


def _parse(key: str, data: memoryview) -> list[dict[str, Any]]:
    try:
        if key.endswith(".parquet"):
            return _checkpoint(data)
        # One list of them all is parsed in half the time.
        lines = [line for line in bytes(data).removeprefix(_MARK).splitlines() if line.strip()]
        actions: list[dict[str, Any]] = json.loads(b"[" + b",".join(lines) + b"]")
        if len(actions) != len(lines) or not all([isinstance(action, dict) for action in actions]):
            raise ValueError("it has not one action in each line")
        return actions
    except (ValueError, RecursionError, OSError) as error:
        raise MetadataError(f"{key!r} is no part of a Delta table's log: {error}") from None


def _checkpoint(data: memoryview) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data))
    names = {name.partition(".")[0] for name in file.schema_arrow.names}
    if {"checkpointMetadata", "sidecar"} & names and "add" not in names:
        raise UnsupportedError("a checkpoint with sidecar files is not read here")
    wanted = [name for name in ("add", "metaData", "protocol") if name in names]
    table = file.read(columns=_leaves(file, wanted))
    return [
        {"add": _plain(row)} if kind == "add" else {kind: _plain(row)}
        for kind in wanted
        for row in table.column(kind).drop_null().to_pylist()
    ]


def _leaves(file: Any, wanted: list[str]) -> list[str]:
    """Return the columns to read of a checkpoint: parsed statistics are not, as they are there as text, too."""
    paths = [file.schema.column(at).path for at in range(len(file.schema))]
    skipped = ("add.stats_parsed", "add.partitionValues_parsed", "add.tags")
    return [path for path in paths if path.partition(".")[0] in wanted and not path.startswith(skipped)]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its maps as they are in JSON."""
    return {
        name: dict(value) if isinstance(value, list) and value and isinstance(value[0], tuple) else value
        for name, value in row.items()
    }


def _by_delta(place: Place, number: int) -> Version:
    """Return a version as delta-rs reads it."""
    table = open_delta(place, number)
    columns = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    import pyarrow as pa

    files = {}
    for row in pa.table(table.get_add_actions()).to_pylist():
        path = file_name(row["path"])
        stats = {"numRecords": row["num_records"], "nullCount": row.get("null_count") or {}}
        stats |= {"minValues": _present(row.get("min")), "maxValues": _present(row.get("max"))}
        modified = row["modification_time"]
        files[path] = DataFile(path, int(row["size_bytes"]), _milliseconds(modified), json.dumps(stats, default=str))
    return Version(number, columns, files, {}, number + 1)


def _present(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _milliseconds(moment: Any) -> int:
    return moment if isinstance(moment, int) else round(moment.timestamp() * 1000)
