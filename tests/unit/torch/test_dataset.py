"""A dataset of boxes: NumPy's cells, one plan for a batch, wrong boxes refused before anything is read."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from support.hostile import array_at, fast, options_for, put

import hyperslab as hs
from hyperslab.errors import InvalidInputError, SelectionError

torch = pytest.importorskip("torch")
from hyperslab.torch import SlabDataset, as_tensors  # noqa: E402

DATA = np.arange(24 * 20, dtype="i4").reshape(24, 20)
LABELS = np.arange(24 * 20, dtype="u1").reshape(24, 20)
BOUNDS = np.array([[[0, 3], [2, 9]], [[5, 24], [0, 20]], [[7, 7], [1, 2]]])


@pytest.fixture
def array():
    return hs.save("memory://torch-tests/data", DATA, chunks=(5, 6), overwrite=True)


@pytest.fixture
def labels():
    return hs.save("memory://torch-tests/labels", LABELS, chunks=(8, 8), overwrite=True)


def same(found, expected):
    assert found.dtype == torch.from_numpy(np.empty(0, expected.dtype)).dtype
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    "key",
    [np.s_[2:5, 3], np.s_[7], np.s_[3, 4], np.s_[::-3, [1, 1, 9]], np.s_[..., None, 2:4], np.s_[8:8, 1:3], np.s_[-1]],
    ids=str,
)
def test_keys_are_those_of_numpy(array, key):
    same(SlabDataset(array, [key])[0], np.asarray(DATA[key]))


def test_bounds_in_an_array(array):
    dataset = SlabDataset(array, BOUNDS)
    assert len(dataset) == 3
    for found, ((top, bottom), (left, right)) in zip(dataset.__getitems__([0, 1, 2]), BOUNDS, strict=True):
        same(found, DATA[top:bottom, left:right])
    assert dataset.nbytes.tolist() == [21 * 4, 19 * 20 * 4, 0]


def test_bounds_of_the_first_axes_alone(array):
    same(SlabDataset(array, BOUNDS[:, :1])[0], DATA[0:3])


@pytest.mark.parametrize("rows", [range(3, 24, 4), np.array([5, -1, 5]), [2, 23]], ids=["range", "array", "list"])
def test_rows_by_their_numbers(array, rows):
    for found, row in zip(SlabDataset(array, rows).__getitems__(range(len(rows))), rows, strict=True):
        same(found, DATA[row])


def test_arrays_under_names_are_read_in_the_same_box(array, labels):
    sample = SlabDataset({"image": array, "label": labels}, [np.s_[3:9, 4:7]])[0]
    assert list(sample) == ["image", "label"]
    same(sample["image"], DATA[3:9, 4:7])
    same(sample["label"], LABELS[3:9, 4:7])


def test_arrays_under_names_with_boxes_of_their_own(array, labels):
    dataset = SlabDataset({"image": array, "label": labels}, {"label": [np.s_[1, 1]], "image": BOUNDS[:1]})
    same(dataset[0]["image"], DATA[0:3, 2:9])
    same(dataset[0]["label"], np.asarray(LABELS[1, 1]))


def test_a_list_of_arrays_has_boxes_that_say_which(array, labels):
    dataset = SlabDataset([array, labels], [(1, np.s_[2:4]), (0, np.s_[5:6, 1:3]), (1, 7)])
    same(dataset[0], LABELS[2:4])
    same(dataset[1], DATA[5:6, 1:3])
    same(dataset[-1], LABELS[7])
    assert dataset.nbytes.tolist() == [40, 8, 20]


def test_the_transform_gets_numpy_and_targets_come_along(array):
    dataset = SlabDataset(array, [np.s_[0:2, 0:2]] * 2, transform=lambda cells: cells.sum(), targets=["a", "b"])
    assert dataset.__getitems__([1, 0]) == [(42, "b"), (42, "a")]
    raw = SlabDataset(array, [np.s_[0:2, 0:2]], transform=None)[0]
    assert type(raw) is np.ndarray


def test_cells_of_another_byte_order_become_tensors():
    assert as_tensors(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert as_tensors(np.arange(3)[::-1]).tolist() == [2, 1, 0]


def test_cells_that_no_tensor_can_hold():
    with pytest.raises(InvalidInputError, match=r"no tensors of <U1.*transform"):
        as_tensors(np.array(["a"]))


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([np.s_[0], np.s_[24]], "box 1 does not fit"),
        (np.array([[[0, 25]]]), r"box 0 is \[\[0, 25\]\], outside"),
        (np.array([[[3, 2]]]), "outside"),
        (np.zeros((1, 3, 2), int), "3 axes"),
        (np.array([24]), "row 24 is not in"),
        (np.zeros((2, 2)), "boxes in an array are whole numbers"),
        ("abc", "a sequence of keys"),
        (7, "a sequence of keys"),
    ],
)
def test_a_wrong_box_is_refused_at_once(array, boxes, message):
    with pytest.raises(InvalidInputError, match=message):
        SlabDataset(array, boxes)


def test_other_wrong_arguments(array, labels):
    with pytest.raises(InvalidInputError, match="2 boxes, but 1 targets"):
        SlabDataset(array, range(2), targets=[0])
    with pytest.raises(InvalidInputError, match=r"different numbers of boxes: \[1, 2\]"):
        SlabDataset({"a": array, "b": labels}, {"a": range(2), "b": range(1)})
    with pytest.raises(InvalidInputError, match=r"boxes are for \['a'\]"):
        SlabDataset({"a": array, "b": labels}, {"a": range(2)})
    with pytest.raises(InvalidInputError, match="a pair"):
        SlabDataset([array, labels], [(2, 0)])
    with pytest.raises(InvalidInputError, match=r"hyperslab\.open"):
        SlabDataset(DATA, range(2))
    with hs.Session() as session, pytest.raises(InvalidInputError, match="different sessions"):
        SlabDataset([array, hs.open("memory://torch-tests/data", session=session)], [])
    with pytest.raises(SelectionError, match="sample 2 is not in"):
        SlabDataset(array, range(2))[2]


def test_a_batch_is_one_plan_and_shared_chunks_come_once(fake_s3):
    put(fake_s3, "a", DATA, (12, 10), "zstd")
    with fast() as session:
        dataset = SlabDataset(array_at(fake_s3, "a", session), [np.s_[1:3, at : at + 2] for at in range(8)])
        for at, found in enumerate(dataset.__getitems__(range(8))):
            same(found, DATA[1:3, at : at + 2])
        assert len(fake_s3.log) == 1
        assert session.metrics.reads == 1


def test_a_pickled_dataset_reads_the_same(tmp_path):
    with hs.Session(cache_bytes=0) as session:
        stored = hs.open(hs.save(tmp_path / "a", DATA, chunks=(5, 6)).url, session=session)
        copy = pickle.loads(pickle.dumps(SlabDataset([stored, stored], [(0, 3), (1, np.s_[2:4])])))
        assert copy.arrays[0].session is copy.arrays[1].session is not session
        same(copy[1], DATA[2:4])
        copy.session.close()


def test_blocks_are_the_chunks_that_samples_begin_in(array, labels):
    assert SlabDataset(array, range(24)).blocks().tolist() == [row // 5 for row in range(24)]
    several = SlabDataset([array, labels], [(1, np.s_[9]), (0, np.s_[4, 13]), (1, np.s_[1]), (0, np.s_[0, 12:])])
    assert several.blocks().tolist() == [2, 0, 1, 0]


def test_hdf5_is_read_too(tmp_path, fake_s3):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=DATA, chunks=(8, 8), compression="gzip")
    fake_s3.fake.objects["bucket/a.h5"] = (tmp_path / "a.h5").read_bytes()
    with fast(index_bytes=1 << 20) as session:
        opened = hs.open("s3://bucket/a.h5/x", storage_options=options_for(fake_s3), session=session)
        dataset = SlabDataset(opened, BOUNDS)
        same(dataset[1], DATA[5:24])


def test_importing_hyperslab_does_not_import_torch():
    probe = "import sys, hyperslab; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", probe], timeout=60, check=False).returncode == 0
