"""Training from boxes of stored arrays: datasets and a loader for PyTorch.

A batch is one plan: chunks that its samples share are fetched and decoded once, and the next batches are on their
way while a model works on this one.

>>> import numpy as np
>>> import hyperslab as hs
>>> from hyperslab.torch import SlabDataset, SlabLoader
>>> field = hs.save("memory://training/field", np.arange(64.0).reshape(8, 8), chunks=(4, 4))
>>> crops = SlabDataset(field, [np.s_[0:2, 0:2], np.s_[3:5, 3:5], np.s_[6:8, 0:2]])
>>> crops[1]
tensor([[27., 28.],
        [35., 36.]], dtype=torch.float64)
>>> [tuple(batch.shape) for batch in SlabLoader(crops, batch_size=2)]
[(2, 2, 2), (1, 2, 2)]
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("hyperslab.torch needs PyTorch: pip install 'hyperslab[learning]'") from error

from hyperslab.torch.dataset import SlabDataset
from hyperslab.torch.iterable import SlabIterable
from hyperslab.torch.loader import SlabLoader
from hyperslab.torch.samplers import BlockSampler
from hyperslab.torch.tensors import Padded, as_list, as_tensors, pad, stack

__all__ = [
    "BlockSampler",
    "Padded",
    "SlabDataset",
    "SlabIterable",
    "SlabLoader",
    "as_list",
    "as_tensors",
    "pad",
    "stack",
]
