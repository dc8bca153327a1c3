"""Who is told of a training: a progress bar, scikit-learn's callbacks, functions of the user.

A training is 100 stretches of its steps. scikit-learn's callbacks, there since its version 1.9, are
told when each of them begins and ends; with an older one, functions are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from sklearn.base import BaseEstimator

from dvip.training import is_first_process, progress_bar

__all__ = ["OF_CALLBACKS", "CallbackSupport"]

# What callbacks leave at an estimator while it is fitted: copies of it need none of that.
OF_CALLBACKS = (
    *("_hooks", "_context", "_stretches_told"),
    *("_skl_callbacks", "_skl_callbacks_to_teardown", "_callback_fit_ctx", "_parent_callback_ctx"),
)

# Tasks of a training that callbacks hear of.
NUM_STRETCHES = 100

# Steps done, steps in all, and the bound, or how a sampling is in words; True ends the training.
Hook = Callable[[int, int, float | str], Any]


def _has_callbacks() -> bool:
    """Whether the installed scikit-learn has callbacks; importing them takes a while."""
    try:
        import sklearn.callback  # noqa: F401
    except ImportError:
        return False
    return True


class CallbackSupport(BaseEstimator):
    """The part of an estimator that tells others of its training."""

    verbose: bool

    # Of a fit that is under way: scikit-learn's context, and stretches that were told of.
    _context: Any = None
    _stretches_told: int = 0

    def set_callbacks(self, *callbacks: Any) -> Self:
        """Sets who is told of the training; nobody without arguments.

        Parameters
        ----------
        *callbacks : callbacks of scikit-learn, or functions
            Callbacks of `sklearn.callback`, such as `ProgressBar()` and `ScoringMonitor(...)`, hear
            of 100 stretches of a training; scores are those of the model at the end. A function is
            called with the steps done, the steps in all, and the bound. What returns True ends the
            training soon.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from dvip import DVIPRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> seen = []
        >>> def note(steps, total, bound):
        ...     seen.append(steps)
        >>> model = DVIPRegressor.paper(n_layers=1, max_iter=400)
        >>> seen[-1] if model.set_callbacks(note).fit(X, y) and seen else None
        400
        """
        hooks = [given for given in callbacks if not _is_callback(given)]
        for given in hooks:
            if not callable(given) or isinstance(given, type):
                raise TypeError(
                    f"{given!r} is no callback: pass a function of steps, total and bound, or, "
                    "with scikit-learn 1.9 or newer, an instance of one of its callbacks."
                )
        formal = [given for given in callbacks if _is_callback(given)]
        for name, chosen in (("_hooks", hooks), ("_skl_callbacks", formal)):
            self.__dict__.pop(name, None)
            if chosen:
                self.__dict__[name] = chosen
        return self

    @property
    def _is_followed(self) -> bool:
        """Whether somebody may end the training."""
        return hasattr(self, "_skl_callbacks") or hasattr(self, "_hooks")

    @contextmanager
    def _told_of_fit(self, X: Any, y: Any) -> Iterator[None]:
        """Within it, callbacks are told of the training; afterwards they are let go."""
        if not hasattr(self, "_skl_callbacks"):
            yield
            return
        from sklearn.callback import CallbackSupportMixin, with_callbacks

        begin = CallbackSupportMixin._init_callback_context

        # A generator cannot be decorated: what is decorated lets callbacks go at its end.
        @with_callbacks
        def let_go(estimator: Any) -> None:
            del estimator

        try:
            self._stretches_told = 0
            self._context = begin(self, max_subtasks=NUM_STRETCHES)
            self._context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            yield
            context, self._context = self._context, None
            context.call_on_fit_task_end(
                estimator=self, X=X, y=y, reconstruction_attributes=lambda: {}
            )
        finally:
            self.__dict__.pop("_context", None)
            self.__dict__.pop("_stretches_told", None)
            let_go(self)

    @contextmanager
    def _progress(self, total: int) -> Iterator[Callable[[int, float | str], bool]]:
        """Gives the function that a training reports to; it returns whether to end it."""
        callbacks = getattr(self, "_skl_callbacks", ())
        has_bar = any(type(given).__name__ == "ProgressBar" for given in callbacks)
        shown = bool(self.verbose) and is_first_process() and not has_bar
        hooks: list[Hook] = getattr(self, "_hooks", [])
        with progress_bar(total, shown=shown) as draw:

            def report(steps: int, bound: float | str) -> bool:
                draw(steps, bound)
                ends = [bool(hook(steps, total, bound)) for hook in hooks]
                return any(ends) | self._tell_stretches(steps / total)

            yield report

    def _tell_stretches(self, share: float) -> bool:
        """Tells callbacks of the stretches that are done; whether one of them ends the training."""
        if self._context is None:
            return False
        ended = False
        while self._stretches_told < min(NUM_STRETCHES, int(NUM_STRETCHES * share)):
            stretch = self._context.subcontext(task_name="stretch")
            stretch.call_on_fit_task_begin(estimator=self)
            ended |= bool(stretch.call_on_fit_task_end(estimator=self))
            self._stretches_told += 1
        return ended


def _is_callback(given: Any) -> bool:
    if isinstance(given, type) or not hasattr(given, "on_fit_task_end"):
        return False
    return _has_callbacks()
