"""Training from rows: a small transformer learns to fill gaps in text, from rows of tokens drawn at random.

As with BERT's corpus, the text is cut into rows of equally many tokens in one large array, of which each step takes
some at random. The text is that of Python's own help topics. Training is broken off in the middle of an epoch, and
goes on from what was saved: not a row comes twice, and none is left out.

    python examples/rows.py             needs hyperslab[learning]: PyTorch
"""

import re
import tempfile
from collections import Counter
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import nn

import hyperslab as hs
from hyperslab.torch import SlabDataset, SlabLoader

WORDS, LENGTH, WIDTH = 500, 32, 32
MASK, UNKNOWN = 0, 1
BATCH, ROWS = 32, 1024


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # for so small a model, more would only wait for each other
    with tempfile.TemporaryDirectory(prefix="hyperslab-rows-") as folder:
        rows = hs.save(folder + "/tokens.zarr", tokens(), chunks=(64, LENGTH))
        print(f"{rows.shape[0]} rows of {LENGTH} tokens, in chunks of {rows.chunks[0]} rows")
        dataset = SlabDataset(rows, range(len(rows)), transform=masked)
        model, optimiser = network()
        loader = SlabLoader(dataset, BATCH, shuffle=True, seed=1, drop_last=True)
        first = train(model, optimiser, loader, stop_after=len(loader) // 2)
        saved = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "loader": loader.state_dict()}
        print(f"stopped after {saved['loader']['batches']} of {len(loader)} batches, loss {first[-1]:.2f}")

        model, optimiser = network()
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        loader = SlabLoader(dataset, BATCH, shuffle=True, drop_last=True)
        loader.load_state_dict(saved["loader"])
        rest = train(model, optimiser, loader)
        print(f"resumed for the other {len(rest)} batches")
        second = train(model, optimiser, loader)
        print(f"loss at first {np.mean(first[:5]):.2f}, at the end {np.mean(second[-5:]):.2f}")


def tokens() -> np.ndarray:
    """Return the text as numbers of words, the most frequent ones first: (rows, length)."""
    words = re.findall(r"[a-z]+|[^a-z\s]", "\n".join(topics.values()).lower())
    number = {word: at + 2 for at, (word, _) in enumerate(Counter(words).most_common(WORDS - 2))}
    found = np.array([number.get(word, UNKNOWN) for word in words[: ROWS * LENGTH]], np.uint16)
    return found[: len(found) // LENGTH * LENGTH].reshape(-1, LENGTH)


def masked(row: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a row with some words taken out, and the whole row."""
    whole = torch.from_numpy(row.astype(np.int64))
    gaps = torch.rand(LENGTH) < 0.15
    return whole.masked_fill(gaps, MASK), whole


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), encoder, nn.Linear(WIDTH, WORDS))
    return model, torch.optim.Adam(model.parameters(), 3e-3)


def train(
    model: nn.Module, optimiser: torch.optim.Optimizer, loader: SlabLoader, stop_after: int | None = None
) -> list[float]:
    """Train until the epoch ends, or for some batches; return the loss at each."""
    losses: list[float] = []
    for gappy, whole in loader:
        gaps = gappy == MASK
        loss = nn.functional.cross_entropy(model(gappy)[gaps], whole[gaps])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if len(losses) == stop_after:
            break
    return losses


if __name__ == "__main__":
    main()
