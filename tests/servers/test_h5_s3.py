"""h5py's interface on a real S3 server: HDF5 files in place, new files, and scripts that know nothing of it.

h5py's own examples are those in its docstrings. Its example scripts, which are only in its source archive, run as well
where the environment variable H5PY_EXAMPLES names their folder.
"""

import doctest
import io
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.hostile import fast, sent
from support.seaweed import options_for

import hyperslab as hs
import hyperslab.h5

CELLS = np.random.default_rng(5).normal(size=(400, 300))


@pytest.fixture(scope="module")
def image():
    """An HDF5 file of about a megabyte."""
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        packed = file.create_dataset("run/packed", data=CELLS, chunks=(20, 30), compression="gzip", shuffle=True)
        packed.attrs["units"] = "m"
        file["run/names"] = ["first", "second"]
        file["link"] = h5py.SoftLink("/run/packed")
    return held.getvalue()


def files_on(s3, **more):
    return {"storage_options": s3.storage_options, **more}


def test_an_hdf5_file_opens_in_place(s3, s3_proxy, image):
    s3.put("h5/in-place.h5", image)
    with fast(cache_bytes=64 << 20) as session:
        reach = {"storage_options": options_for(s3_proxy.endpoint), "session": session}
        with hyperslab.h5.File(s3.url("h5/in-place.h5"), **reach) as file:
            assert np.array_equal(file["run/packed"][35:45, 100], CELLS[35:45, 100])
            assert file["link"].attrs["units"] == "m"
            assert list(file["run/names"].asstr()[:]) == ["first", "second"]
        requests, nbytes = sent(s3_proxy)
        assert requests <= 10
        assert nbytes < len(image) / 2
        metrics = session.metrics.snapshot()
        assert (metrics.requests + metrics.lookups, metrics.bytes) == (requests, nbytes)


def test_an_hdf5_file_is_not_replaced(s3, image):
    s3.put("h5/stays.h5", image)
    for mode in ("w", "w-", "x"):
        with pytest.raises(FileExistsError):
            hyperslab.h5.File(s3.url("h5/stays.h5"), mode, **files_on(s3))
    with hyperslab.h5.File(s3.url("h5/stays.h5"), "a", **files_on(s3)) as file:
        assert (file.mode, list(file)) == ("r", ["link", "run"])
    with pytest.raises(FileNotFoundError):
        hyperslab.h5.File(s3.url("h5/none.h5"), **files_on(s3))


def test_new_files(s3):
    url = s3.url("h5/new.h5")
    with hyperslab.h5.File(url, "w", **files_on(s3)) as file:
        rows = file.create_dataset("g/rows", (10, 4), "f4", maxshape=(None, 4), chunks=(5, 4))
        for row in range(10):
            rows[row] = row
        rows.resize(12, axis=0)
        file["names"] = ["a", "bcd"]
        file["g"].attrs["title"] = "rows"
        file["soft"] = h5py.SoftLink("/g/rows")
    with hyperslab.h5.File(url, **files_on(s3)) as file:
        expected = np.vstack([np.arange(10)[:, None] * np.ones(4), np.zeros((2, 4))])
        assert np.array_equal(file["soft"][...], expected)
        assert list(file["names"].asstr()[:]) == ["a", "bcd"]
        assert file["g"].attrs["title"] == "rows"
        assert list(file) == ["g", "names", "soft"]
    with hyperslab.h5.File(url, "a", **files_on(s3)) as file:
        del file["g"]
        assert list(file) == ["names", "soft"]
        assert file.get("soft") is None


def run(s3, folder, script, *arguments):
    """Run a script by the command, its own folder mapped to the bucket; return what it prints."""
    place = s3.url(f"h5/{folder.name}")
    options = [f"-S{name}={value}" for name, value in s3.storage_options.items()]
    command = [sys.executable, "-m", "hyperslab", "run", "--map", f"{folder}={place}", *options, str(script)]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir() if path.suffix in (".h5", ".hdf5")] == []
    return done.stdout


def own_example(method):
    """Return the example in the docstring of one of h5py's methods, as a script."""
    examples = doctest.DocTestParser().get_examples(method.__doc__)
    return "from h5py import *\n" + "".join(example.source for example in examples)


def test_h5pys_own_examples(s3, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(own_example(h5py.Group.copy) + "print(sorted(f.keys()))\n")
    assert run(s3, tmp_path, script) == "['MyCopy', 'MyGroup']\n"
    made = hs.open(s3.url(f"h5/{tmp_path.name}/myfile.hdf5"), storage_options=s3.storage_options)
    assert sorted(made) == ["MyCopy", "MyGroup"]


def test_h5pys_own_examples_of_an_hdf5_file(s3, tmp_path, image):
    s3.put(f"h5/{tmp_path.name}/foo.hdf5", image)
    script = tmp_path / "example.py"
    script.write_text(own_example(h5py.Group.visit) + "print(list_of_names)\n")
    assert run(s3, tmp_path, script) == "['run', 'run/names', 'run/packed']\n"
    script.write_text(own_example(h5py.Group.visititems) + "print(mylist)\n")
    assert run(s3, tmp_path, script) == "['run/names', 'run/packed']\n"


@pytest.mark.skipif("H5PY_EXAMPLES" not in os.environ, reason="H5PY_EXAMPLES names no folder with h5py's examples")
def test_h5pys_example_scripts(s3, tmp_path):
    examples = Path(os.environ["H5PY_EXAMPLES"])
    assert run(s3, tmp_path, examples / "store_datetimes.py") == "['2019-09-22T17:38:30']\n"
    made = hs.open(s3.url(f"h5/{tmp_path.name}/datetimes.h5/data"), storage_options=s3.storage_options)
    assert made[0] == np.datetime64("2019-09-22T17:38:30")
