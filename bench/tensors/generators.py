"""Tensors to measure with: pictures, and a sparse tensor that is like the pickups of a taxi company.

`pickups()` has the shape and the number of non-zeros of the Uber tensor in the Delta Tensor paper: days, hours,
latitudes, longitudes. Few cells of the map have most of the pickups (streets of a long, narrow centre, three airports),
hours have a peak in the evening, days a week and a trend. It was calibrated so that tables as in the paper have the
sizes that the paper reports: COO 13% and BSGS 4.8% of a PT file with values of 64 bits.
"""

import numpy as np

__all__ = ["PICKUPS_NNZ", "PICKUPS_SHAPE", "pickups", "pictures"]

PICKUPS_SHAPE = (183, 24, 1140, 1717)
PICKUPS_NNZ = 3_309_490
# How busy each hour is.
_HOURS = [57, 36, 26, 28, 33, 51, 82, 105, 106, 97, 96, 101, 107, 116, 128, 141, 152, 159, 158, 148, 139, 134, 115, 84]
_WEEK = [0.92, 1.0, 1.05, 1.1, 1.12, 1.0, 0.81]
# Parts of the city: share, latitude, longitude, how far each reaches along its own axes, how far it is turned.
_DISTRICTS = [
    (0.79, 668, 668, 23, 7, 0.55),
    (0.145, 655, 700, 24, 22, 0.0),
    (0.03, 690, 690, 60, 70, 0.0),
]
# Far from the centre there are pickups in some places only.
_SUBURBS = (0.022, 700, 700, 220, 260, 0.3)
_AIRPORTS = [(0.014, 576, 877, 2.5), (0.012, 704, 787, 3.0), (0.008, 626, 480, 2.0)]
# How unlike neighbouring cells and neighbouring quarters are, and which share of the quarters is closed.
_CELL_ROUGHNESS, _QUARTER_ROUGHNESS = 0.45, 0.5
_CLOSED, _CLOSED_SUBURBS = 0.2, 0.988
_QUARTER, _SUBURB_QUARTER = 5, 9


def pickups(nnz: int = PICKUPS_NNZ, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return coordinates (4, nnz), row-major and each once, and counts of pickups, as int64."""
    rng = np.random.default_rng(seed)
    days, hours, height, width = PICKUPS_SHAPE
    spots, shares = _map(rng, height, width)
    by_hour = np.array(_HOURS) / sum(_HOURS)
    by_day = np.resize(_WEEK, days) * np.linspace(0.8, 1.5, days) * rng.normal(1, 0.05, days)
    slots = np.outer(by_day / by_day.sum(), by_hour).reshape(-1)
    found = np.empty(0, np.int64)
    counts = np.empty(0, np.int64)
    while len(found) < nnz:
        drawn = int(1.45 * nnz) if not len(found) else nnz // 8
        when = np.repeat(np.arange(days * hours), rng.multinomial(drawn, slots))
        where = spots[np.searchsorted(np.cumsum(shares), rng.random(drawn))]
        places, each = np.unique(when * (height * width) + where, return_counts=True)
        found, inverse = np.unique(np.concatenate([found, places]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, each])).astype(np.int64)
    kept = np.sort(rng.choice(len(found), nnz, replace=False))
    return np.array(np.unravel_index(found[kept], PICKUPS_SHAPE)), counts[kept]


def _map(rng: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of the map that have pickups, and each one's share of them."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    rate = np.zeros((height, width), np.float32)
    for district in _DISTRICTS:
        rate += _hill(y, x, *district)
    rate *= np.exp(_quarters(rng.normal(0, _QUARTER_ROUGHNESS, rate.shape), _QUARTER))
    rate[_quarters(rng.random(rate.shape), _QUARTER) < _CLOSED] = 0
    suburbs = _hill(y, x, *_SUBURBS) / (1 - _CLOSED_SUBURBS)
    suburbs[_quarters(rng.random(rate.shape), _SUBURB_QUARTER) < _CLOSED_SUBURBS] = 0
    rate += suburbs
    rate *= np.exp(rng.normal(0, _CELL_ROUGHNESS, rate.shape))
    for share, lat, lon, reach in _AIRPORTS:
        rate += share / reach**2 * np.exp(-((y - lat) ** 2 + (x - lon) ** 2) / (2 * reach**2))
    flat = rate.reshape(-1) / rate.sum()
    spots = np.flatnonzero(flat > 2e-8)
    shares = flat[spots].astype(np.float64)
    return spots, shares / shares.sum()


def _hill(y, x, share, lat, lon, long, short, turn) -> np.ndarray:
    along = (y - lat) * np.cos(turn) + (x - lon) * np.sin(turn)
    across = (x - lon) * np.cos(turn) - (y - lat) * np.sin(turn)
    return np.asarray(share / (long * short) * np.exp(-((along / long) ** 2 + (across / short) ** 2) / 2), np.float32)


def _quarters(field: np.ndarray, side: int) -> np.ndarray:
    """Return a field with one value for each square of so many cells."""
    height, width = field.shape
    return field[::side, ::side].repeat(side, axis=0).repeat(side, axis=1)[:height, :width].astype(np.float32)


def pictures(count: int, side: int = 256, seed: int = 0) -> np.ndarray:
    """Return pictures (count, 3, side, side) of unsigned bytes: smooth, with noise, as photographs are.

    >>> pictures(2, 32).shape
    (2, 3, 32, 32)
    """
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 200, (count, 3, side // 8 + 1, side // 8 + 1), np.uint8)
    smooth = coarse.repeat(8, axis=2).repeat(8, axis=3)[:, :, :side, :side]
    return np.asarray(smooth + rng.integers(0, 40, smooth.shape, np.uint8))
