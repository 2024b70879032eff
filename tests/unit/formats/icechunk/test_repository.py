"""Which snapshot a branch, a tag or an id is, and where a repository is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.whole_reads import DictReader, DirectoryReader

from hyperslab.errors import HyperslabError, InvalidInputError, MetadataError, NotFoundError
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.repository import Revision, find_repository, parse_revision, resolve
from hyperslab.formats.icechunk.snapshot import Snapshot


def test_branches_and_tags_lead_to_their_snapshots(repository):
    folder, history = repository
    reader = DirectoryReader(folder.parent)
    for text, cells in history.versions.items():
        identity = resolve(reader, parse_revision(f"repo@{text}"))
        key = f"repo/snapshots/{name_of(identity)}"
        snapshot = Snapshot((folder.parent / key).read_bytes(), identity, key)
        for path in cells:
            assert snapshot.node(path).document["shape"] == list(cells[path].shape)
    assert resolve(reader, Revision("repo")) == resolve(reader, Revision("repo", "branch", "main"))


@pytest.mark.parametrize("text", ["branch=v1", "tag=main", "tag=gone", "branch=..", "tag=v"])
def test_what_is_not_there_is_not_found(repository, text):
    with pytest.raises(NotFoundError, match=text.replace("=", " ").split()[0]):
        resolve(DirectoryReader(repository[0].parent), parse_revision(f"repo@{text}"))


def test_a_path_into_a_repository_leads_to_it(repository):
    reader = DirectoryReader(repository[0].parent)
    revision, identity = find_repository(reader, "repo/deep/er/cube")
    assert revision == Revision("repo", "branch", "main", "deep/er/cube")
    assert identity == resolve(reader, Revision("repo"))
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


def test_a_ref_that_names_no_snapshot(tmp_path):
    reader = DictReader({"refs/branch.main/ref.json": b'{"snapshot": 7}'})
    with pytest.raises(MetadataError, match="names no snapshot"):
        resolve(reader, Revision(""))
