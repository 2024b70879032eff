"""Commits: what is visible is decided by one of them, and each is applied exactly once and reported truly.

A commit is made by delta-rs, at the version after the one that it was decided on, without retries of its own: a
request that is sent again by itself may meet its own first try and be taken for a conflict, or land twice. Instead,
every commit carries a token, and after every try that did not succeed the log is read: if the token is there, the
commit has landed, whatever was reported; if another commit is in its place, it is decided anew on the new version.
A try aims at one version only, and a version is left only once it is taken: so no try can land later.
"""

import json
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from hyperslab.errors import ConflictError, StoreError
from hyperslab.tensors.delta import ask_delta, delta_module, delta_options, delta_url, open_delta
from hyperslab.tensors.log import TOKEN, DataFile, Version, read_log, read_version
from hyperslab.tensors.parquet import Stored
from hyperslab.tensors.place import Place

__all__ = ["Change", "Committer", "latest_version"]

# Files are few, so that checkpoints are small; and every commit after one is a request for those who open the table.
_SETTINGS = {"delta.checkpointInterval": "20"}
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What a commit is to do: files that are stored already to add, files of the version to remove.

    `columns` are those that the table has to have, with their types in Arrow. With `moved_only` the rows of the added
    files are those of the removed ones.
    """

    operation: str
    adds: Sequence[Stored] = ()
    removes: Sequence[DataFile] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    moved_only: bool = False


# Decides on a version what is to be done; None is nothing. It may be asked several times, and raise what the user gets.
Decide = Callable[[Version | None], Change | None]


def latest_version(place: Place, known: Version | None = None) -> Version | None:
    """Return the table as it is now, None if there is none."""
    log = read_log(place)
    return None if log.latest is None else read_version(place, log, log.latest, known)


class Committer:
    """Commits to one table, until a deadline of `patience_s` each."""

    def __init__(self, place: Place, schema: pa.Schema, patience_s: float = 60.0) -> None:
        self.place, self.schema, self.patience_s = place, schema, patience_s
        self._table: Any = None
        self._lock = threading.Lock()

    def commit(self, decide: Decide, known: Version | None = None) -> Version | None:
        """Carry out what `decide` says of the latest version; return the version that has it, or has nothing to do."""
        attempt = _Attempt(self.place.session.retries, time.monotonic() + self.patience_s)
        version = latest_version(self.place, known)
        while True:
            change = decide(version)
            if change is None:
                return version
            attempt.begin()
            landed, failure = self._try(version, change, attempt.token)
            seen = self._look_back(version, attempt)
            if landed or (seen is not None and attempt.token in seen.tokens):
                return seen
            if failure is not None and version is not None and (seen is None or seen.told_from > version.number + 1):
                raise attempt.unknown(failure)
            version = seen
            attempt.pause(failure, version)

    def _try(self, version: Version | None, change: Change, token: str) -> tuple[bool, StoreError | None]:
        """Make one try at the version after this one; return whether it is there now for sure, and what went wrong."""
        # Threads may share a handle: between a look at its table's version and the commit nobody moves it on.
        with self._lock:
            try:
                if version is None:
                    self._create(change)
                elif missing := {name: type_ for name, type_ in change.columns.items() if name not in version.columns}:
                    self._add_columns(version, missing)
                else:
                    return self._write(version, change, token), None
            except StoreError as error:
                self._table = None
                return False, error
        return False, None

    def _look_back(self, version: Version | None, attempt: "_Attempt") -> Version | None:
        """Read what has become of the table; while that cannot be read, nothing can be said of the commit."""
        while True:
            try:
                return latest_version(self.place, version)
            except StoreError as error:
                attempt.wait_for_answer(error)

    def _create(self, change: Change) -> None:
        module, place = delta_module(), self.place
        fields = [*self.schema, *(pa.field(name, type_) for name, type_ in change.columns.items())]
        schema = pa.schema({each.name: each.type for each in fields}.items())
        options = delta_options(place) or None
        ask_delta(
            place,
            "creating the table",
            lambda: module.DeltaTable.create(
                delta_url(place), schema, mode="error", configuration=_SETTINGS, storage_options=options
            ),
        )

    def _add_columns(self, version: Version, columns: Mapping[str, Any]) -> None:
        table = self._at(version)
        if table is not None:
            fields = delta_module().Schema.from_arrow(pa.schema(list(columns.items()))).fields
            ask_delta(self.place, "adding columns", lambda: table.alter.add_columns(fields))

    def _write(self, version: Version, change: Change, token: str) -> bool:
        """Commit, unless the version is not the latest any more; tell whether that was done."""
        table = self._at(version)
        if table is None:
            return False
        actions = _actions(change)
        properties = delta_module().CommitProperties(
            custom_metadata={TOKEN: token, "hyperslab.operation": change.operation}, max_commit_retries=0
        )
        ask_delta(
            self.place,
            "committing to the table",
            lambda: table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties),
        )
        return True

    def _at(self, version: Version) -> Any:
        """Return the table of delta-rs if it is at this version; None if the version is not the latest any more."""
        if self._table is None:
            self._table = open_delta(self.place)
        elif self._table.version() != version.number:
            ask_delta(self.place, "reading the log", self._table.update_incremental)
        return self._table if self._table.version() == version.number else None


def _actions(change: Change) -> list[Any]:
    from deltalake.transaction import AddAction, RemoveAction

    now_ms, is_new = int(time.time() * 1000), not change.moved_only
    removes = [
        RemoveAction(file.path, is_new, now_ms, size=file.nbytes, partition_values={}) for file in change.removes
    ]
    adds = [AddAction(new.name, new.nbytes, {}, now_ms, is_new, json.dumps(new.stats)) for new in change.adds]
    return [*removes, *adds]


class _Attempt:
    """A commit on its way: its token, how long it may take, how often it failed without a conflict."""

    def __init__(self, retries: int, deadline: float) -> None:
        self.token = secrets.token_hex(16)
        self._deadline, self._failures_left = deadline, retries
        self._seen: int | None = None
        self._begun, self._tries = time.monotonic(), 0

    def begin(self) -> None:
        """Take the time of a try."""
        self._begun = time.monotonic()
        self._tries += 1

    def pause(self, failure: StoreError | None, version: Version | None) -> None:
        """Wait before the next try, a random time; or raise, where there is to be none."""
        number = -1 if version is None else version.number
        if failure is not None and number == self._seen:
            # Nobody else was quicker: the store or delta-rs does not want to.
            self._failures_left -= 1
            if self._failures_left < 0:
                raise failure
        self._seen = number
        if time.monotonic() > self._deadline:
            raise ConflictError(
                "others committed to the table every time before this commit could; it was not applied: try again later"
            ) from failure
        self._sleep()

    def wait_for_answer(self, error: StoreError) -> None:
        """Wait before the log is asked for again; or raise, where it has given no answer for too long."""
        if time.monotonic() > self._deadline or not error.transient:
            raise self.unknown(error) from error
        self._sleep()

    def unknown(self, error: StoreError) -> StoreError:
        """Return the error for a commit of which nobody can say whether it was applied."""
        return StoreError(
            f"whether the commit with token {self.token} was applied is not known, as the log cannot be read; "
            f"look for the token in the table's history ({error})"
        )

    def _sleep(self) -> None:
        # Others need as long for a try as this one did; after every conflict there may be twice as many of them.
        most_s = (time.monotonic() - self._begun) * 2 ** min(self._tries, 10)
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, most_s)))
