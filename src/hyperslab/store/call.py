"""A call of a function beside the data, as bytes: what it is asked for, and what it answers.

Neither side trusts the other: whoever reads checks every field. No input or output.
"""

from hyperslab.store.call_reply import CallReply, ChunkAnswer, shrink_of
from hyperslab.store.call_request import AxisSelect, CallChunk, CallLayout, CallLimits, CallRequest, Points, bucket_of
from hyperslab.store.checked import CallTooLargeError

__all__ = [
    "AxisSelect",
    "CallChunk",
    "CallLayout",
    "CallLimits",
    "CallReply",
    "CallRequest",
    "CallTooLargeError",
    "ChunkAnswer",
    "Points",
    "bucket_of",
    "shrink_of",
]
