"""h5py itself with some files served: what is mapped, what stays h5py's, and scripts that know nothing of it."""

import sys

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
import hyperslab.h5
from hyperslab.cli.command import command
from hyperslab.h5.serving import mapped_url, served

REAL = {name: getattr(h5py, name) for name in ("File", "Group", "Dataset", "Datatype", "AttributeManager", "is_hdf5")}

SCRIPT = """
import sys
import h5py
import numpy as np

with h5py.File(sys.argv[1], "w") as f:
    d = f.create_dataset("group/data", data=np.arange(20).reshape(4, 5), compression="gzip")
    d.attrs["units"] = "m"

f = h5py.File(sys.argv[1], "r")
def tell(name, found):
    print(name, isinstance(found, h5py.Dataset), isinstance(found, h5py.Group))
f.visititems(tell)
print(f["group/data"][1:3, [0, 4]].sum(), f["group/data"].attrs["units"], isinstance(f, h5py.File))
f.close()
"""
SAID = "group False True\ngroup/data True False\n38 m True\n"


@pytest.fixture(autouse=True)
def as_before():
    """Whatever happens, h5py, the arguments and the path are afterwards what they were."""
    arguments, path = list(sys.argv), list(sys.path)
    yield
    sys.argv[:], sys.path[:] = arguments, path
    assert {name: getattr(h5py, name) for name in REAL} == REAL


def run(*arguments):
    return CliRunner().invoke(command, ["run", *map(str, arguments)])


class TestPlaces:
    def test_the_longest_path_counts(self):
        places = {"/data": "s3://bucket/all", "/data/new": "s3://other", "/data/a.h5": "memory://one/b.h5"}
        assert mapped_url("/data/x/y.h5", places) == "s3://bucket/all/x/y.h5"
        assert mapped_url("/data/new/y.h5", places) == "s3://other/y.h5"
        assert mapped_url(b"/data/a.h5", places) == "memory://one/b.h5"
        assert mapped_url("/data/../data/a.h5", places) == "memory://one/b.h5"
        for name in ("/database/x.h5", "/a.h5", "x.h5", None, 5):
            assert mapped_url(name, places) is None
        assert mapped_url("S3://bucket/a.h5", {}) == "S3://bucket/a.h5"

    def test_relative_paths(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert mapped_url("x.h5", {str(tmp_path): "memory://m"}) == "memory://m/x.h5"


class TestServed:
    def test_both_kinds_of_files(self, tmp_path):
        with served({str(tmp_path / "far"): "memory://h5-served"}):
            with h5py.File(tmp_path / "far" / "a.h5", "w") as far, h5py.File(tmp_path / "near.h5", "w") as near:
                far["x"] = near["x"] = np.arange(3)
                for file in (far, near):
                    assert isinstance(file, h5py.File)
                    assert isinstance(file["x"], h5py.Dataset)
                    assert isinstance(file["x"].file, h5py.File)
                    assert isinstance(file["/"], h5py.Group)
                    assert isinstance(file.attrs, h5py.AttributeManager)
                    assert not isinstance(file["x"], h5py.Group)
                assert type(near).__mro__[1] is REAL["File"]
                assert isinstance(far, hyperslab.h5.File)
            assert h5py.is_hdf5(tmp_path / "far" / "a.h5")
            assert h5py.is_hdf5(tmp_path / "near.h5")
            assert not h5py.is_hdf5(tmp_path / "far" / "none.h5")
            assert list(h5py.File("memory://h5-served/a.h5")["x"]) == [0, 1, 2]
        assert not (tmp_path / "far").exists()
        with REAL["File"](tmp_path / "near.h5") as near:
            assert list(near["x"]) == [0, 1, 2]

    def test_other_ways_to_open_stay(self, tmp_path):
        import io

        buffer = io.BytesIO()
        with served(), h5py.File(buffer, "w") as file:
            file["x"] = 1
        with h5py.File(buffer) as file:
            assert file["x"][()] == 1

    def test_classes_made_of_it(self, tmp_path):
        with served():

            class Mine(h5py.File):
                pass

            with Mine(tmp_path / "mine.h5", "w") as mine, h5py.File.in_memory() as other:
                assert isinstance(mine, h5py.File)
                assert isinstance(other, h5py.File)
                assert not isinstance(other, Mine)


class TestRun:
    def test_a_script_against_a_map(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        done = run("--map", f"{tmp_path}/data=memory://h5-run", script, f"{tmp_path}/data/a.h5")
        assert (done.exit_code, done.output) == (0, SAID)
        assert not (tmp_path / "data").exists()
        assert hs.open("memory://h5-run/a.h5/group/data").shape == (4, 5)

    def test_the_same_script_without_a_map_is_h5pys(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        done = run(script, tmp_path / "a.h5")
        assert (done.exit_code, done.output) == (0, SAID)
        assert h5py.is_hdf5(tmp_path / "a.h5")

    def test_reads_are_recorded(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        done = run("--record", tmp_path / "log.hslog", script, "memory://h5-run/recorded.h5")
        assert (done.exit_code, done.output) == (0, SAID)
        assert len(hs.Workload.load(str(tmp_path / "log.hslog"))) == 1

    def test_arguments_and_modules_beside_the_script(self, tmp_path):
        (tmp_path / "beside_the_script.py").write_text("word = 'found'")
        script = tmp_path / "script.py"
        script.write_text("import sys, beside_the_script\nprint(sys.argv[1:], beside_the_script.word, __name__)\n")
        done = run(script, "--map", "x", "-y")
        assert (done.exit_code, done.output) == (0, "['--map', 'x', '-y'] found __main__\n")

    def test_how_a_script_ends(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("import sys\nsys.exit(7)\n")
        assert run(script).exit_code == 7
        script.write_text("def fails():\n    return 1 / 0\n\nfails()\n")
        done = run(script)
        assert done.exit_code == 1
        assert 'script.py", line 2, in fails' in done.output
        assert "ZeroDivisionError" in done.output
        assert "runpy" not in done.output

    @pytest.mark.parametrize("wrong", ["/data", "=s3://b", "/data="])
    def test_wrong_use(self, tmp_path, wrong):
        (tmp_path / "script.py").write_text("")
        done = run("--map", wrong, tmp_path / "script.py")
        assert done.exit_code == 1
        assert "PATH=URL" in done.output
        assert "no script" in run(tmp_path / "none.py").output
        assert run("--mpa", "/data=s3://b", tmp_path / "script.py").exit_code == 2
