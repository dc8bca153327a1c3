"""Ctrl-C and SIGTERM, held back until the training is at a place where it can stop."""

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["HeldBackSignals"]


class HeldBackSignals:
    """Within it, a signal is only noted; `deliver` lets it do what it would have done at once.

    A second signal is not held back. Only the main thread has signals; elsewhere this does nothing.
    """

    def __init__(self, *numbers: signal.Signals):
        self.numbers = numbers
        self.noted: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "HeldBackSignals":
        if threading.current_thread() is threading.main_thread():
            for number in self.numbers:
                previous = signal.getsignal(number)
                # What is ignored stays ignored; what is not Python's could not be put back.
                if previous not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        self._put_back()
        self._previous = {}
        self.deliver()

    def _put_back(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        second = self.noted is not None
        self.noted = number
        if second:
            self.deliver()

    def deliver(self) -> None:
        """Lets a signal that was noted take effect: an exception, or the end of the process."""
        if self.noted is None:
            return
        number, self.noted = self.noted, None
        self._put_back()
        signal.raise_signal(number)
        # Whoever handled it wants to go on.
        for other in self._previous:
            signal.signal(other, self._note)
