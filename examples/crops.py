"""Training from boxes: a small network learns what crops of a photograph show, read box by box from a stored array.

As with pictures of camera traps, somebody has marked boxes in them, of different sizes and with a label each; only
these are read. The pictures are the photograph that comes with Matplotlib, as several exposures of it, in one
compressed array with chunks of 64 × 64 pixels. Samples are shuffled by blocks of chunks, padded to one size for each
batch, and read by two worker processes.

    python examples/crops.py            needs hyperslab[learning,plot,collections]: PyTorch, Matplotlib, Pillow
"""

import tempfile

import matplotlib.cbook
import numpy as np
import PIL.Image
import torch
from torch import nn

import hyperslab as hs
from hyperslab.torch import Padded, SlabDataset, SlabLoader, pad

EXPOSURES = (0.7, 0.85, 1.0, 1.1)
# Where somebody saw what in the photograph: (top, bottom, left, right).
MARKED = {
    "face": (130, 310, 185, 345),
    "uniform": (420, 600, 60, 460),
    "flag": (10, 330, 0, 145),
    "wall": (10, 330, 380, 512),
}
CROPS, BATCH, EPOCHS = 320, 16, 3


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # for so small a model, more would only wait for each other
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="hyperslab-crops-") as folder:
        pictures = hs.save(folder + "/pictures.zarr", photographs(), chunks=(1, 64, 64, 3))
        print(f"{pictures.shape[0]} pictures, {pictures.nbytes / 1e6:.1f} MB, in chunks of {pictures.chunks}")
        model = network()
        boxes, labels = marked_crops(random)
        dataset = SlabDataset(pictures, boxes, transform=prepared, targets=labels)
        train(model, SlabLoader(dataset, BATCH, "blocks", seed=0, num_workers=2, collate_fn=pad))
        boxes, labels = marked_crops(random)
        others = SlabDataset(pictures, boxes, transform=prepared, targets=labels)
        right = accuracy(model, SlabLoader(others, BATCH, collate_fn=pad))
        print(f"crops that it has not seen: {right:.0%} told apart, of {len(MARKED)} kinds")


def photographs() -> np.ndarray:
    """Return the photograph in several exposures: (pictures, height, width, colours)."""
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        photo = np.asarray(PIL.Image.open(file).convert("RGB"), np.float32)
    return np.stack([np.clip(photo * light, 0, 255).astype(np.uint8) for light in EXPOSURES])


def marked_crops(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw boxes of different sizes within what was marked; return their bounds and labels."""
    labels = random.integers(0, len(MARKED), CROPS)
    boxes = np.empty((CROPS, 3, 2), np.int64)
    for box, label in zip(boxes, labels, strict=True):
        top, bottom, left, right = list(MARKED.values())[label]
        height, width = random.integers(48, 80, 2)
        y, x = random.integers(top, bottom - height), random.integers(left, right - width)
        picture = random.integers(len(EXPOSURES))
        box[:] = (picture, picture + 1), (y, y + height), (x, x + width)
    return boxes, labels


def prepared(crop: np.ndarray) -> torch.Tensor:
    """Turn one crop, (1, height, width, colours), into what the network takes: colours first, from 0 to 1."""
    return torch.from_numpy(crop[0]).permute(2, 0, 1).float() / 255


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(32 * 9, len(MARKED)),
    )  # fmt: skip


def train(model: nn.Module, loader: SlabLoader) -> None:
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch in range(EPOCHS):
        losses = []
        for crops, labels in loader:
            loss = nn.functional.cross_entropy(model(crops.values), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, {describe(crops)}")


def describe(crops: Padded) -> str:
    height, width = crops.values.shape[2:]
    return f"the last batch padded to {height} × {width}, {1 - crops.mask.float().mean():.0%} of it filling"


@torch.no_grad()
def accuracy(model: nn.Module, loader: SlabLoader) -> float:
    right = [(model(crops.values).argmax(1) == labels).float().mean() for crops, labels in loader]
    return float(torch.stack(right).mean())


if __name__ == "__main__":
    main()
