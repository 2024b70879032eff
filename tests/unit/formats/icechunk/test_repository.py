"""Which snapshot a branch, a tag or an id is, and where a repository is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.whole_reads import DictReader, DirectoryReader

from hyperslab.errors import AccessError, HyperslabError, InvalidInputError, MetadataError, NotFoundError
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.repository import Revision, find_repository, parse_revision, resolve
from hyperslab.formats.icechunk.snapshot import Snapshot


def test_branches_and_tags_lead_to_their_snapshots(repository):
    folder, history = repository
    reader = DirectoryReader(folder)
    for text, cells in history.versions.items():
        identity = resolve(reader, parse_revision(f"@{text}"))
        key = f"snapshots/{name_of(identity)}"
        snapshot = Snapshot((folder / key).read_bytes(), identity, key)
        for path in cells:
            assert snapshot.node(path).document["shape"] == list(cells[path].shape)
    assert resolve(reader, Revision("")) == resolve(reader, Revision("", "branch", "main"))


@pytest.mark.parametrize("text", ["branch=v1", "tag=main", "tag=gone", "branch=..", "tag=v"])
def test_what_is_not_there_is_not_found(repository, text):
    with pytest.raises(NotFoundError, match=text.replace("=", " ").split()[0]):
        resolve(DirectoryReader(repository[0]), parse_revision(f"@{text}"))


def test_a_path_into_a_repository_leads_to_it(repository):
    folder = repository[0]
    reader = DirectoryReader(folder.parent)
    revision, identity = find_repository(reader, f"{folder.name}/deep/er/cube")
    assert revision == Revision(folder.name, "branch", "main", "deep/er/cube")
    assert identity == resolve(reader, Revision(folder.name))
    assert find_repository(reader, "elsewhere/deep") is None
    assert find_repository(DirectoryReader(repository[0]), "")[0] == Revision("")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b@branch=main", Revision("a/b", "branch", "main")),
        ("a/b/@tag=v 1/x/y", Revision("a/b", "tag", "v 1", "x/y")),
        ("@branch=main/x", Revision("", "branch", "main", "x")),
        ("a@home/b@tag=v@2/x", Revision("a@home/b", "tag", "v@2", "x")),
        ("r@snapshot=1CECHNKREP0F1RSTCMT0/", Revision("r", "snapshot", "1CECHNKREP0F1RSTCMT0")),
        ("a/b", None), ("a@b", None), ("a@branch=", None), ("a@commit=x", None), ("", None),
    ],
)  # fmt: skip
def test_how_versions_are_written(path, expected):
    assert parse_revision(path) == expected


def test_an_id_that_none_has_is_refused_before_anything_is_asked():
    with pytest.raises(InvalidInputError, match="no snapshot's id"):
        parse_revision("repo@snapshot=latest")


@given(st.binary(max_size=80) | st.text(max_size=40).map(lambda text: f'{{"snapshot": "{text}"}}'.encode()))
def test_hostile_files_of_refs(data):
    for key in ("r/refs/branch.main/ref.json", "r/repo"):
        reader = DictReader({key: data})
        with pytest.raises(HyperslabError):
            resolve(reader, Revision("r"))


class NotListing(DictReader):
    """Refuses what is not there, as a bucket does to those who may not list it."""

    def get(self, key):
        found = super().get(key)
        if found is None:
            raise AccessError(f"{key} is refused")
        return found


def test_a_bucket_that_may_not_be_listed():
    ref = b'{"snapshot": "1CECHNKREP0F1RSTCMT0"}'
    reader = NotListing({"refs/branch.main/ref.json": ref, "refs/tag.v1/ref.json": ref})
    for revision in (Revision(""), Revision("", "tag", "v1")):
        assert name_of(resolve(reader, revision)) == "1CECHNKREP0F1RSTCMT0"
    with pytest.raises(AccessError):
        resolve(reader, Revision("", "branch", "other"))


def test_a_ref_that_names_no_snapshot(tmp_path):
    reader = DictReader({"refs/branch.main/ref.json": b'{"snapshot": 7}'})
    with pytest.raises(MetadataError, match="names no snapshot"):
        resolve(reader, Revision(""))
