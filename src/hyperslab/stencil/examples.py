"""Functions over neighbours that are written often: those of the ArrayUDF paper (section 2.1), and Poisson's equation.

Each is plain Python, to be used as it is or to be read before writing one's own. Those that need numbers (distances,
how far to average) are made by a function that takes them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hyperslab.errors import InvalidInputError

__all__ = ["laplacian", "moving_average", "poisson_2d", "poisson_3d", "trilinear", "vorticity"]


def moving_average(before: int, after: int, weights: Sequence[float] | None = None) -> Callable[[Any], Any]:
    """Return the average over a series from `before` cells back to `after` cells on, as in the paper's equation 1.

    Weights, where given, are one for each of these cells, the earliest first; their sum is not divided out.

    >>> import numpy as np
    >>> from hyperslab.stencil.memory import apply_in_memory
    >>> apply_in_memory(moving_average(1, 2), [np.array([0.0, 4, 8, 12, 16])], boundary="shrink")
    array([ 6., 10.])
    """
    count = before + after + 1
    factors = (1,) * count if weights is None else tuple(weights)
    if before < 0 or after < 0 or len(factors) != count:
        raise InvalidInputError(
            f"an average from {before} cells back to {after} on has {count} weights, got {len(factors)}"
        )

    def average(s: Any) -> Any:
        total = factors[0] * s(-before)
        for k in range(1, count):
            total += factors[k] * s(k - before)
        return total / count

    return average


def vorticity(dy: float = 1.0, dx: float = 1.0) -> Callable[[Any, Any], Any]:
    """Return the vorticity ∂v/∂x − ∂u/∂y of a flow (u along x, v along y) on a grid whose axes are y, then x.

    Equation 2 of the paper, as printed, adds ∂u/∂x and ∂v/∂y, which is the flow's divergence.

    >>> import numpy as np
    >>> from hyperslab.stencil.memory import apply_in_memory
    >>> y, x = np.indices((4, 5), dtype=float)
    >>> float(apply_in_memory(vorticity(), [-y, x], boundary="shrink").mean())
    2.0
    """

    def curl(u: Any, v: Any) -> Any:
        return (v(0, 1) - v(0, -1)) / (2 * dx) - (u(1, 0) - u(-1, 0)) / (2 * dy)

    return curl


def laplacian(s: Any) -> Any:
    """Return how far a cell stands out of its six neighbours in 3-D, which finds peaks: the paper's equation 3.

    >>> import numpy as np
    >>> from hyperslab.stencil.memory import apply_in_memory
    >>> cube = np.zeros((3, 3, 3)); cube[1, 1, 1] = 2
    >>> float(apply_in_memory(laplacian, [cube])[1, 1, 1])
    12.0
    """
    sides = s(0, 0, 1) + s(0, 0, -1) + s(0, 1, 0) + s(0, -1, 0) + s(1, 0, 0) + s(-1, 0, 0)
    return 6 * s(0, 0, 0) - sides


def trilinear(field: Any, z: Any, y: Any, x: Any) -> Any:
    """Return a field between the points of a 3-D mesh: the paper's equation 4.

    In each cell of the mesh one place is asked for; `z`, `y` and `x` say where it is, from 0 at the cell's own point
    to 1 at the next one along the first, second and third axis.

    >>> import numpy as np
    >>> from hyperslab.stencil.memory import apply_in_memory
    >>> planes = np.indices((3, 3, 3), dtype=float)
    >>> middle = np.full((3, 3, 3), 0.25)
    >>> apply_in_memory(trilinear, [planes[0], middle, middle, middle], boundary="shrink")[:, 0, 0]
    array([0.25, 1.25])
    """
    c, b, a = z(0, 0, 0), y(0, 0, 0), x(0, 0, 0)
    near = (1 - b) * ((1 - a) * field(0, 0, 0) + a * field(0, 0, 1)) + b * (
        (1 - a) * field(0, 1, 0) + a * field(0, 1, 1)
    )
    far = (1 - b) * ((1 - a) * field(1, 0, 0) + a * field(1, 0, 1)) + b * (
        (1 - a) * field(1, 1, 0) + a * field(1, 1, 1)
    )
    return (1 - c) * near + c * far


def poisson_2d(s: Any) -> Any:
    """Return the left side of Poisson's equation in 2-D, on a grid with steps of 1.

    >>> import numpy as np
    >>> from hyperslab.stencil.memory import apply_in_memory
    >>> apply_in_memory(poisson_2d, [np.array([[0, 1, 0]])], boundary=0)
    array([[-1,  4, -1]])
    """
    return 4 * s(0, 0) - s(-1, 0) - s(1, 0) - s(0, -1) - s(0, 1)


def poisson_3d(s: Any) -> Any:
    """Return the left side of Poisson's equation in 3-D, on a grid with steps of 1.

    >>> import numpy as np
    >>> from hyperslab.stencil.memory import apply_in_memory
    >>> apply_in_memory(poisson_3d, [np.array([[[0, 1, 0]]])], boundary=0)
    array([[[-1,  6, -1]]])
    """
    return 6 * s(0, 0, 0) - s(-1, 0, 0) - s(1, 0, 0) - s(0, -1, 0) - s(0, 1, 0) - s(0, 0, -1) - s(0, 0, 1)
