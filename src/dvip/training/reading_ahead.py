"""Reading ahead: the next pieces of the data are made in a thread while the current one is used."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# Pieces that wait, besides the one that is used.
PIECES_AHEAD = 2


def read_ahead(
    read: Callable[[Piece], Result], pieces: Iterable[Piece]
) -> Generator[Result, None, None]:
    """`read` of each piece, in order, up to `PIECES_AHEAD` before they are asked for.

    What `read` raises is raised here, when its piece is asked for. The thread ends when the
    generator does: close it (`contextlib.closing`) if not all of it is used.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="dvip-read-ahead") as thread:
        try:
            for piece in pieces:
                waiting.append(thread.submit(read, piece))
                if len(waiting) > PIECES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
