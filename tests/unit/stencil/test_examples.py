"""The functions of the paper, against NumPy."""

import numpy as np
import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.stencil.examples import laplacian, moving_average, poisson_2d, poisson_3d, trilinear, vorticity
from hyperslab.stencil.memory import apply_in_memory

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moving_average(dtype):
    series = RNG.random(500).astype(dtype)
    got = apply_in_memory(moving_average(1, 2), [series], boundary="shrink")
    assert got.dtype == dtype
    np.testing.assert_allclose(got, np.convolve(series, np.ones(4) / 4, "valid"), rtol=1e-5)


def test_weighted_moving_average():
    series = RNG.random(200)
    weights = (0.5, 1.0, 2.0)
    got = apply_in_memory(moving_average(2, 0, weights), [series], boundary="shrink")
    np.testing.assert_allclose(got, np.convolve(series, weights[::-1], "valid") / 3)
    with pytest.raises(InvalidInputError, match="3 weights"):
        moving_average(1, 1, (1.0, 2.0))


def test_vorticity_of_a_flow_that_turns():
    """A body that turns by ω has a vorticity of 2ω everywhere, and no divergence."""
    y, x = np.indices((30, 40)) * np.array([0.5, 0.25])[:, None, None]
    got = apply_in_memory(vorticity(dy=0.5, dx=0.25), [-3 * y, 3 * x], boundary="shrink")
    np.testing.assert_allclose(got, 6.0)
    u, v = RNG.random((2, 30, 40)).astype(np.float32)
    got = apply_in_memory(vorticity(dy=0.5, dx=0.25), [u, v], boundary="shrink")
    assert got.dtype == np.float32
    wanted = np.gradient(v, 0.25, axis=1) - np.gradient(u, 0.5, axis=0)
    np.testing.assert_allclose(got, wanted[1:-1, 1:-1], rtol=1e-5, atol=1e-5)


def test_laplacian_finds_a_peak():
    field = RNG.random((12, 13, 14)).astype(np.float32)
    field[5, 6, 7] = 9
    got = apply_in_memory(laplacian, [field])
    assert np.unravel_index(got.argmax(), got.shape) == (5, 6, 7)
    np.testing.assert_allclose(got, apply_in_memory(poisson_3d, [field]), rtol=1e-4, atol=1e-5)


def test_trilinear_is_exact_for_linear_fields():
    z, y, x = np.indices((6, 7, 8), dtype=float)
    places = RNG.random((3, 6, 7, 8))
    got = apply_in_memory(trilinear, [2 * z - 3 * y + 5 * x, *places], boundary="shrink")
    wanted = 2 * (z + places[0]) - 3 * (y + places[1]) + 5 * (x + places[2])
    np.testing.assert_allclose(got, wanted[:-1, :-1, :-1])


def test_poisson_on_a_parabola():
    y, x = np.indices((20, 30), dtype=float)
    np.testing.assert_allclose(apply_in_memory(poisson_2d, [x * x + y * y], boundary="shrink"), -4.0)
    z, y, x = np.indices((8, 9, 10), dtype=float)
    np.testing.assert_allclose(apply_in_memory(poisson_3d, [x * x + y * y + z * z], boundary="shrink"), -6.0)
