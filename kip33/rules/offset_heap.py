"""A binary heap of offsets in an array, usable from compiled code: the smallest is at 0.

Offsets in growing order, as in a log, are pushed without a swap.
"""

from typing import Any


def push(heap: Any, size: int, offset: int) -> None:
    """Add `offset` to the `size` offsets of `heap`, which has room."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= offset:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = offset


def pop(heap: Any, size: int) -> None:
    """Remove the smallest of the `size` offsets of `heap`; `size` is at least 1."""
    size -= 1
    last = heap[size]
    at = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = last
