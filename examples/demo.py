"""A tour of Hyperslab in under a minute: a night sky on disk, slices of it, plans, a budget, HDF5, damage, a race.

`make demo` runs it. It needs no server, no account and nothing beyond Hyperslab's own dependencies; what it
writes goes into a temporary folder that it removes. Every figure it prints is measured while it runs, except
those that it calls predicted.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import h5py
import numpy as np
import zarr
from rich.console import Console
from rich.table import Table
from rich.text import Text

import hyperslab as hs
from hyperslab.store import memory

SIZE, CHUNK = 8192, 2048
ARCHIVE_SIZE = 4096
PLATE = 1536  # the side of the part that is stored as HDF5, and saved
GALAXY = (4150, 4020)  # its centre lies where four chunks meet
BOX = 21

# From night to starlight, for pictures in the terminal; without colours, by how much ink they have.
PALETTE = np.array([(6, 8, 22), (24, 22, 70), (82, 34, 110), (190, 70, 90), (250, 160, 80), (255, 250, 230)])
INK = " .:-=+*#%@"

console = Console(highlight=False)


def main() -> None:
    """Run all parts, in a folder that is gone afterwards."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hyperslab-demo-") as folder:
        sky = make_sky()
        write(sky, Path(folder, "night.zarr"))
        opened = open_and_slice(folder, sky)
        local_plan(opened["counts"])
        cloud_plan(Path(folder, "night.zarr"), "counts")
        shard_plan(opened["archive"], sky)
        hdf5_in_place(Path(folder, "plate.h5"), plate_of(sky))
        save_and_damage(Path(folder, "plate.zarr"), plate_of(sky))
        race(Path(folder, "night.zarr", "counts"), sky)
    seconds = time.perf_counter() - started
    console.print(f"\nThat was all, in {seconds:.0f} s. Next: README.md, docs/getting-started.md.", style="bold")


# Telling


def part(title: str, *lines: str) -> None:
    """Begin a part of the tour."""
    console.print()
    console.rule(f"[bold]{title}", align="left", style="cyan")
    for line in lines:
        console.print(line)


def code(*lines: str) -> None:
    """Show the code that runs next."""
    console.print()
    for line in lines:
        console.print(Text(f"    {line}", "cyan"), soft_wrap=True)
    console.print()


def show_plan(explanation: object) -> None:
    """Print an explanation as a user would: it colours itself on a terminal."""
    console.file.flush()
    print(explanation, flush=True)


def text_of(seconds: float) -> str:
    """Write a time in a unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


# The sky


def make_sky() -> np.ndarray:
    """Make a mosaic as a camera would: a glow, a galaxy, stars and the noise of counting photons."""
    part("A night sky", f"Making a mosaic of {SIZE} × {SIZE} pixels (int32, {SIZE * SIZE * 4 / 1e6:.0f} MB) …")
    rng = np.random.default_rng(2025)
    sky = glow(rng)
    y, x = (at - 1500 for at in GALAXY)
    sky[y : y + 3000, x : x + 3000] += galaxy(3000)
    add_stars(sky, rng, 9000)
    return counted(sky, rng)


def counted(sky: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Turn brightness into whole photons with their noise, in place: row by row, in the same memory."""
    counts, noise = sky.view(np.int32), np.empty((256, SIZE), np.float32)
    for row in range(0, SIZE, len(noise)):
        expected = sky[row : row + len(noise)]
        # With this many photons a Poisson distribution is as good as normal.
        rng.standard_normal(dtype=np.float32, out=noise)
        noise *= np.sqrt(expected)
        noise += expected
        counts[row : row + len(noise)] = np.maximum(noise, 0, out=noise)
    return counts


def glow(rng: np.random.Generator) -> np.ndarray:
    """Make a smooth background: a coarse random field, drawn out to the full size."""
    knots = 9
    field = 60 + 90 * rng.random((knots, knots), np.float32) ** 3
    place = np.linspace(0, knots - 1.001, SIZE, dtype=np.float32)
    near = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(knots, dtype=np.float32)))
    near = near * near * (3 - 2 * near)
    return near @ field @ near.T


def galaxy(size: int) -> np.ndarray:
    """Make a spiral with two arms, seen at an angle."""
    axis = np.arange(-size / 2, size / 2, dtype=np.float32)
    across, along = axis[:, None] * 1.7 + axis[None, :] * 0.5, axis[None, :] - axis[:, None] * 0.2
    radius = np.hypot(across, along) + 1
    arms = 0.5 + 0.5 * np.cos(2 * np.arctan2(across, along) - 5.5 * np.log(radius / 40))
    disc = 900 * np.exp(-radius / 330) * (0.25 + arms**2)
    return disc + 5000 * np.exp(-((radius / 60) ** 1.2))


def add_stars(sky: np.ndarray, rng: np.random.Generator, count: int) -> None:
    """Add stars: many faint, few bright, each blurred by the air."""
    axis = np.arange(-12, 13, dtype=np.float32)
    distance = axis[:, None] ** 2 + axis[None, :] ** 2
    stamps = [(1 + distance / width) ** -2.5 for width in (2.0, 4.0, 9.0)]
    corners = rng.integers(0, SIZE - len(axis), (count, 2))
    for (y, x), brightness in zip(corners.tolist(), 400 * rng.pareto(1.1, count) + 200, strict=True):
        stamp = stamps[int(brightness > 2000) + int(brightness > 20000)]
        sky[y : y + len(axis), x : x + len(axis)] += np.float32(min(brightness, 2e5)) * stamp


def write(sky: np.ndarray, path: Path) -> None:
    """Write the mosaic with zarr-python: plain, and a corner of it compressed and sharded."""
    started = time.perf_counter()
    group = zarr.open_group(path, mode="w", attributes={"telescope": "synthetic", "filter": "r"})
    plain = group.create_array("counts", shape=sky.shape, dtype=sky.dtype, chunks=(CHUNK, CHUNK), compressors=None)
    plain[:] = sky
    archive = group.create_array(
        "archive", shape=(ARCHIVE_SIZE, ARCHIVE_SIZE), dtype=sky.dtype, chunks=(256, 256), shards=(CHUNK, CHUNK),
        compressors=zarr.codecs.ZstdCodec(level=1),
    )  # fmt: skip
    archive[:] = sky[:ARCHIVE_SIZE, :ARCHIVE_SIZE]
    took = time.perf_counter() - started
    console.print(
        f"… and writing it with zarr-python, plain, and a quarter of it sharded and compressed ({took:.1f} s)."
    )


# Reading


def open_and_slice(folder: str, sky: np.ndarray) -> hs.Group:
    """Open the store, look at it, compare some slices with NumPy's."""
    part("Open it, slice it like NumPy")
    code('night = hs.open("night.zarr")', "print(night.tree())")
    night = hs.open(f"{folder}/night.zarr")
    console.print(night.tree(), markup=False)
    counts = night["counts"]
    side = max(16, min(48, console.width // 2 - 2))
    step, near = -(-SIZE // side), 1248 // side
    y, x = (at - near * side // 2 for at in GALAXY)
    overview = counts[::step, ::step]
    cutout = counts[y : y + side * near : near, x : x + side * near : near]
    all_of_it = f"counts[::{step}, ::{step}]"
    nearer = f"counts[{y}:{y + side * near}:{near}, {x}:{x + side * near}:{near}]"
    code(
        'counts = night["counts"]',
        f"{all_of_it:<36}  # all of it, thinned out",
        f"{nearer:<36}  # nearer, where four chunks meet",
    )
    pictures(overview, cutout)
    check(counts, sky)
    return night


def check(counts: hs.Array, sky: np.ndarray) -> None:
    """Compare every kind of selection with NumPy."""
    picked, mask = [5000, 17, 17, 2100], np.zeros(SIZE, bool)
    mask[::1000] = True
    y, x = np.array([3, 8191, 4000]), np.array([5, 0, 4000])
    pairs = {
        "counts[4000, 4000]": (counts[4000, 4000], sky[4000, 4000]),
        "counts[4090:4111, 2040:2061]": (counts[4090:4111, 2040:2061], sky[4090:4111, 2040:2061]),
        "counts[::-500, 5000:4000:-7]": (counts[::-500, 5000:4000:-7], sky[::-500, 5000:4000:-7]),
        "counts[[5000, 17, 17, 2100], mask]": (counts[picked, mask], sky[np.ix_(picked, mask)]),
        "counts.points[y, x]": (counts.points[y, x], sky[y, x]),
        "counts.lazy[100:7000][::9][-5:, 3]": (counts.lazy[100:7000][::9][-5:, 3].read(), sky[100:7000][::9][-5:, 3]),
    }
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("selection", "shape", "equal to NumPy's"):
        table.add_column(heading)
    for key, (got, expected) in pairs.items():
        equal = got.dtype == expected.dtype and np.array_equal(got, expected)
        table.add_row(Text(key, "cyan"), str(np.shape(got)), "[green]yes" if equal else "[bold red]NO")
    console.print(table)


def local_plan(counts: hs.Array) -> None:
    """Explain a small read of local files, and run it to see how good the prediction was."""
    part("Every read has a plan", "On a local disk plain chunks are mapped: exactly the needed bytes are touched.")
    code("print(counts.explain[4090:4111, 2040:2061].analyze())")
    show_plan(counts.explain[4090:4111, 2040:2061].analyze())


def cloud_plan(path: Path, name: str) -> None:
    """Explain a read of the same array as if it were on S3, then refuse one that is too dear."""
    part(
        "The same array as if it were on S3",
        "Only its metadata is copied, into memory://; the session plans as for S3 over the internet, at list prices.",
        "There, what to send is a choice: every way below gives the same cells.",
    )
    store = memory("demo")
    put(store, path, "night.zarr", ["zarr.json", f"{name}/zarr.json"])
    y, x = GALAXY
    key = np.s_[y - 200 : y + 200, x - 200 : x + 200]
    with hs.Session(profile="s3-internet", prices="aws") as session:
        counts = hs.open("memory://demo/night.zarr/counts", session=session)
        code(
            'session = hs.Session(profile="s3-internet", prices="aws")',
            'counts = hs.open("memory://demo/night.zarr/counts", session=session)',
            f"print(counts.explain[{y - 200}:{y + 200}, {x - 200}:{x + 200}])",
        )
        show_plan(counts.explain[key])
        weigh(counts, key)
        refuse(counts)


def put(store: object, path: Path, prefix: str, names: Sequence[str]) -> None:
    """Copy files into an object store."""
    for name in names:
        store.put(f"{prefix}/{name}", Path(path, name).read_bytes())


def weigh(counts: hs.Array, key: tuple[slice, ...]) -> None:
    """Show how the plan changes with what a dollar is worth."""
    console.print("\nWhat is best depends on what a dollar is worth: phi, in seconds.")
    code("counts.explain(key, phi=…)")
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("phi", "requests", "fetched", "predicted time", "predicted dollars"):
        table.add_column(heading, justify="right")
    for phi in (0.0, 1000.0, 10_000.0, float("inf")):
        estimate = counts.explain(key, phi=phi).plan.estimate
        table.add_row(
            f"{phi:g}", f"{estimate.all_requests:,}", f"{estimate.all_bytes / 1e6:.2f} MB",
            text_of(estimate.seconds), f"${estimate.usd:.6f}",
        )  # fmt: skip
    console.print(table)


def refuse(counts: hs.Array) -> None:
    """Ask for all of it with a small budget: nothing is sent."""
    console.print("\nA budget is checked before the first request is sent:")
    code("counts.read(..., budget=hs.Budget(usd=0.01))")
    before = counts.session.metrics.requests
    try:
        counts.read(..., budget=hs.Budget(usd=0.01))
    except hs.errors.BudgetError as error:
        console.print(Text(f"BudgetError: {error}", "red"))
    console.print(f"Data requests sent: {counts.session.metrics.requests - before}.")


def shard_plan(archive: hs.Array, sky: np.ndarray) -> None:
    """Read a compressed, sharded array: an index first, then only the chunks that are needed; then from memory."""
    part(
        "Shards and compression",
        f"The archive has chunks of {archive.chunks} in shards of {archive.shards}. A shard's index says where each "
        "chunk lies: it is read first and kept, and only then is known what to ask for. The second time costs nothing.",
    )
    code("archive[1000:1100, 1000:1100]   # twice")
    expected = sky[1000:1100, 1000:1100]
    for when in ("first time", "second time"):
        before = archive.session.metrics.snapshot()
        equal = np.array_equal(archive[1000:1100, 1000:1100], expected)
        after = archive.session.metrics.snapshot()
        console.print(
            f"{when}: index lookups {after.lookups - before.lookups}, requests {after.requests - before.requests}, "
            f"{(after.bytes - before.bytes) / 1e3:.0f} KB read for {expected.nbytes / 1e3:.0f} KB, "
            f"chunks from memory {after.cache_hits - before.cache_hits}, equal to NumPy: {'yes' if equal else 'NO'}"
        )


# HDF5


def plate_of(sky: np.ndarray) -> np.ndarray:
    """Return the part of the sky around the galaxy."""
    y, x = (at - PLATE // 2 for at in GALAXY)
    return sky[y : y + PLATE, x : x + PLATE]


def hdf5_in_place(path: Path, plate: np.ndarray) -> None:
    """Write an HDF5 file with h5py and open it where it is: on disk, then as an object of a store."""
    part(
        "HDF5 where it is",
        f"h5py writes {PLATE} × {PLATE} pixels around the galaxy: chunks of (128, 128), gzip and shuffle.",
        "Hyperslab opens the file as it is; a path may go on inside of it.",
    )
    with h5py.File(path, "w") as file:
        counts = file.create_dataset(
            "camera/counts", data=plate, chunks=(128, 128), compression="gzip", compression_opts=1, shuffle=True
        )
        counts.attrs["units"] = "photons"
    code('counts = hs.open("plate.h5/camera/counts")', 'counts[700:800, ::-3], counts.attrs["units"]')
    counts = hs.open(path / "camera/counts")
    with h5py.File(path) as file:
        expected = file["camera/counts"][700:800][:, ::-3]
    equal = "[green]yes" if np.array_equal(counts[700:800, ::-3], expected) else "[bold red]NO"
    console.print(f"units: {counts.attrs['units']!r}, equal to h5py's: {equal}")
    hdf5_as_object(path, plate)


def hdf5_as_object(path: Path, plate: np.ndarray) -> None:
    """Count the requests that the same file takes when it is an object of a store."""
    memory("demo").put("plate.h5", path.read_bytes())
    console.print(f"\nThe same file as an object of {path.stat().st_size / 1e6:.1f} MB, planned as on S3:")
    with hs.Session(profile="s3", prices="aws") as session:
        code(
            'counts = hs.open("memory://demo/plate.h5/camera/counts", session=session)',
            "counts[700:800, 200:900]",
        )
        counts = hs.open("memory://demo/plate.h5/camera/counts", session=session)
        equal = np.array_equal(counts[700:800, 200:900], plate[700:800, 200:900])
        sent = session.metrics.snapshot()
    console.print(
        f"requests to open it and read its index: {sent.lookups}, for the 14 chunks: {sent.requests}; "
        f"{sent.bytes / 1e3:.0f} KB in all, equal to NumPy: {'yes' if equal else 'NO'}"
    )


# Writing


def save_and_damage(path: Path, plate: np.ndarray) -> None:
    """Save an array, change it, then flip one bit and lose one file: both are errors, not numbers."""
    part(
        "Write, and notice damage",
        "What is saved is Zarr, which other libraries read; every chunk, index and metadata document has a checksum.",
    )
    code('saved = hs.save("plate.zarr", plate, shards=(768, 768))', "saved[700:800, ::-3] = 0")
    saved = hs.save(path, plate, shards=(768, 768))
    saved[700:800, ::-3] = 0
    expected = plate.copy()
    expected[700:800, ::-3] = 0
    equal = np.array_equal(saved[...], expected) and np.array_equal(zarr.open_array(path, mode="r")[...], expected)
    stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    console.print(
        f"{plate.nbytes / 1e6:.1f} MB of pixels, {stored / 1e6:.1f} MB stored; read back by Hyperslab and by "
        f"zarr-python, both equal: {'[green]yes' if equal else '[bold red]NO'}"
    )
    console.print("\nNow one bit of one file is flipped:")
    flip_bit(path / "c/1/0", at=123_456)
    code('hs.open("plate.zarr")[...]')
    say_error(lambda: hs.open(path)[...])
    console.print("\nAnd another file is removed:")
    (path / "c/0/1").unlink()
    code('hs.open("plate.zarr")[:100, 900]')
    say_error(lambda: hs.open(path)[:100, 900])


def flip_bit(path: Path, at: int) -> None:
    """Flip a bit of the byte at a place of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 8
    path.write_bytes(data)


def say_error(read: Callable[[], object]) -> None:
    """Print the error that a read raises."""
    try:
        read()
        console.print("[bold red]nothing was noticed")
    except hs.errors.HyperslabError as error:
        console.print(Text(f"{type(error).__name__}: {error}", "red"))


def race(path: Path, sky: np.ndarray) -> None:
    """Time small boxes at random places, in turns with zarr-python."""
    part("How fast", f"{BOX} × {BOX} boxes at 40 random places of the plain array, the two libraries in turns:")
    corners = np.random.default_rng(7).integers(0, SIZE - BOX, (40, 2)).tolist()
    keys = [np.s_[y : y + BOX, x : x + BOX] for y, x in corners]
    with hs.Session(cache_bytes=0) as session:
        readers = {
            "hyperslab": hs.open(path, session=session),
            f"zarr {zarr.__version__}": zarr.open_array(path, mode="r"),
        }
        for key in keys:
            assert all(np.array_equal(reader[key], sky[key]) for reader in readers.values())
        rounds = {name: [] for name in readers}
        for _ in range(5):
            for name, reader in readers.items():
                rounds[name].append(timed(lambda reader=reader: [reader[key] for key in keys]) / len(keys))
    ours, theirs = (median(seconds) for seconds in rounds.values())
    console.print()
    for name, seconds in rounds.items():
        console.print(f"  {name:<12} {text_of(median(seconds)):>8} a box (median of {len(seconds)} rounds)")
    console.print(
        f"  [bold green]{theirs / ours:.0f} times faster[/], on this machine, with the files in the page cache."
    )


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


# Pictures


def pictures(*images: np.ndarray) -> None:
    """Show images of like size beside each other: two rows to a line in colour, else in characters."""
    shades = [brightness(image) for image in images]
    blocks = console.color_system is not None and not console.no_color and "utf" in (console.encoding or "").lower()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_row(*[in_colour(shade) if blocks else in_ink(shade) for shade in shades])
    console.print(grid)
    console.print()


def brightness(image: np.ndarray) -> np.ndarray:
    """Map counts to 0…1 so that faint and bright can be seen together."""
    shade = np.arcsinh((image - np.percentile(image, 2)) / 60.0)
    return np.clip(shade / max(1.0, np.percentile(shade, 99.7)), 0, 1)


def in_colour(shade: np.ndarray) -> Text:
    """Draw two rows of pixels in each line, by half blocks."""
    at = shade * (len(PALETTE) - 1)
    low = np.minimum(at.astype(int), len(PALETTE) - 2)
    colours = (PALETTE[low] + (PALETTE[low + 1] - PALETTE[low]) * (at - low)[..., None]).astype(int).tolist()
    text = Text()
    for upper, lower in zip(colours[::2], colours[1::2], strict=False):
        for above, below in zip(upper, lower, strict=True):
            text.append("▀", f"rgb({above[0]},{above[1]},{above[2]}) on rgb({below[0]},{below[1]},{below[2]})")
        text.append("\n")
    return text


def in_ink(shade: np.ndarray) -> Text:
    """Draw every other row in characters."""
    levels = (shade[::2] * (len(INK) - 1)).astype(int)
    return Text("\n".join("".join(INK[level] for level in row) for row in levels.tolist()))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # piped into `head`
        sys.stderr.close()
