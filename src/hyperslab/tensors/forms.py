"""Tensors of other libraries, in and out. A library is only looked for where it is used already, or asked for.

numpy          arrays
coo            our own `Coo`
scipy          arrays and matrices of `scipy.sparse`; out: `coo_array`
sparse         arrays of `pydata/sparse`; out: `sparse.COO`
torch          dense tensors
torch_sparse   sparse tensors of any of torch's layouts; out: COO
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.tensors.values import Coo, coo_of_dense

__all__ = ["FORMS", "in_form", "tensor_of"]

Cells = npt.NDArray[Any] | Coo


def tensor_of(given: Any) -> Cells:
    """Return a tensor as an array or as a `Coo`, as it is dense or sparse.

    >>> import scipy.sparse
    >>> tensor_of(scipy.sparse.csr_array([[0, 3], [4, 0]])).coords
    array([[0, 1],
           [1, 0]])
    """
    if isinstance(given, Coo):
        return Coo.of(given.shape, given.coords, given.values, given.fill)
    for name, taken in (("scipy.sparse", _from_scipy), ("sparse", _from_pydata), ("torch", _from_torch)):
        module = sys.modules.get(name)
        found = None if module is None else taken(module, given)
        if found is not None:
            return found
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidInputError("a masked array is no tensor, as masks are not stored; fill it first")
    try:
        return np.asarray(given)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"a tensor is an array of some library, not {type(given).__name__}: {error}") from None


def _from_scipy(module: Any, given: Any) -> Coo | None:
    if not module.issparse(given):
        return None
    found = given.tocoo()
    coords = np.array([np.asarray(along, np.int64) for along in found.coords])
    return Coo.of(found.shape, coords.reshape(len(found.shape), -1), found.data)


def _from_pydata(module: Any, given: Any) -> Coo | None:
    if not isinstance(given, module.SparseArray):
        return None
    found: Any = given.asformat("coo")
    return Coo.of(found.shape, found.coords, found.data, found.fill_value)


def _from_torch(module: Any, given: Any) -> Cells | None:
    if not isinstance(given, module.Tensor):
        return None
    if given.dtype == module.bfloat16:
        raise InvalidInputError("torch.bfloat16 has no like in NumPy; convert the tensor to float32 first")
    plain = given.detach().cpu()
    if plain.layout == module.strided:
        return np.asarray(plain.resolve_conj().resolve_neg().numpy())
    found = plain.to_sparse_coo().coalesce()
    if found.dense_dim():
        return coo_of_dense(np.asarray(found.to_dense().numpy()))
    return Coo.of(tuple(found.shape), found.indices().numpy(), found.values().numpy())


def in_form(cells: Any, form: str) -> Any:
    """Return cells in the form of a library.

    >>> in_form(Coo.of((2, 2), [[0], [1]], np.array([5])), "numpy")
    array([[0, 5],
           [0, 0]])
    """
    if form not in FORMS:
        raise InvalidInputError(f"a form is one of {', '.join(FORMS)}, not {form!r:.40}")
    return FORMS[form](cells)


def _dense(cells: Any) -> Any:
    return cells.to_dense() if isinstance(cells, Coo) else cells


def _coo(cells: Any) -> Coo:
    return cells if isinstance(cells, Coo) else coo_of_dense(np.asarray(cells))


def _library(name: str) -> Any:
    """Return the module of a library that a form was asked of."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UnsupportedError(f"this form needs {package}: pip install {package} ({error})") from None


def _to_scipy(cells: Any) -> Any:
    coo = _coo(cells)
    if coo.ndim < 1 or _differs_from_zero(coo):
        raise UnsupportedError("scipy.sparse has arrays of one axis or more whose fill value is 0; take another form")
    return _library("scipy.sparse").coo_array((coo.values, tuple(coo.coords)), shape=coo.shape)


def _to_pydata(cells: Any) -> Any:
    coo, known = _coo(cells), {"has_duplicates": False, "sorted": True}
    return _library("sparse").COO(coo.coords, coo.values, shape=coo.shape, fill_value=coo.fill, **known)


def _to_torch(cells: Any) -> Any:
    return _library("torch").from_numpy(np.require(_dense(cells), requirements=["C", "W"]))


def _to_torch_sparse(cells: Any) -> Any:
    torch, coo = _library("torch"), _coo(cells)
    if _differs_from_zero(coo):
        raise UnsupportedError("sparse tensors of torch have the fill value 0; take another form")
    return torch.sparse_coo_tensor(
        torch.from_numpy(np.ascontiguousarray(coo.coords)), torch.from_numpy(np.ascontiguousarray(coo.values)),
        coo.shape, is_coalesced=True, check_invariants=False,
    )  # fmt: skip


def _differs_from_zero(coo: Coo) -> bool:
    return bool(coo.fill != np.zeros((), coo.dtype)[()])


FORMS: dict[str, Callable[[Any], Any]] = {
    "numpy": _dense,
    "coo": _coo,
    "scipy": _to_scipy,
    "sparse": _to_pydata,
    "torch": _to_torch,
    "torch_sparse": _to_torch_sparse,
}
