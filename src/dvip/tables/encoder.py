"""The inputs of a model from the columns of a table: fitted once, stored with the model."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_array,
    check_is_fitted,
    validate_data,
)

from dvip.tables.cells import TableError, TableWarning, quoted
from dvip.tables.columns import (
    Column,
    ColumnSurvey,
    LeftOut,
    NumberColumn,
    Surprises,
    TextColumn,
    column_from_json,
    column_to_json,
)

__all__ = ["TableEncoder", "row_ranks"]

# What a message about unusable columns quotes.
MAX_REASONS = 3
# Medians are those of a random sample of the rows where there are more than so many rows, or so
# many numbers in them.
MAX_SAMPLED_ROWS, MAX_SAMPLED_NUMBERS = 100_000, 2**22
SAMPLE_SEED = 1
LAST_RANK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def row_ranks(rows: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each row's number, uniform over the unsigned 64-bit numbers.

    The finaliser of the generator SplitMix64 at the positions of the rows.
    """
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        bits = start + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class TableEncoder(TransformerMixin, BaseEstimator):
    """Numbers for a model from the columns of a table, whatever they hold.

    Numbers and truth values are used as they are; text of numbers, percentages or amounts of money
    is read as numbers. Text with up to 20 different values becomes one input for each of them.
    Gaps are filled with the median and have an input that says so. Dates, free text and columns
    that say nothing are left out, each with the reason.

    Attributes
    ----------
    columns_ : tuple of NumberColumn and TextColumn
        The columns that are used, and how.
    left_out_ : tuple of LeftOut
        The columns that are not, and why.
    warnings_ : tuple of str
        What may be a mistake in the table, such as a value that decides the scale of its column.
    feature_names_in_ : array of str
        Names of the columns of the table; not of an array, whose columns are x0, x1, ...
    n_features_in_ : int
        How many columns the table has.

    Examples
    --------
    >>> import pandas as pd
    >>> from dvip import TableEncoder
    >>> table = pd.DataFrame({"age": [31, None, 56], "sex": ["f", "m", "f"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.transform(table)
    array([[31.,  0.,  1.,  0.],
           [31.,  1.,  0.,  1.],
           [56.,  0.,  1.,  0.]])
    >>> list(encoder.get_feature_names_out())
    ['age', 'age is missing', 'sex = f', 'sex = m']
    """

    n_features_in_: int
    feature_names_in_: np.ndarray

    # What was seen of each column, nothing once it is loaded, and how the sample for the medians is
    # drawn; then what was decided on.
    _surveys: dict[str, ColumnSurvey]
    _decided: tuple[tuple[Column, ...], tuple[LeftOut, ...]] | None
    _num_rows: int
    _num_sampled: int
    _max_rank: int

    @classmethod
    def of_numbers(cls, names: Iterable[str]) -> Self:
        """For a model that was fitted to numbers: these columns as they are, without gaps."""
        columns = tuple(NumberColumn(name, fill=None, had_gaps=False) for name in names)
        return cls()._restored(columns, (), [column.name for column in columns])

    def fit(self, X: Any, y: Any = None) -> Self:
        """Decides on every column of a table.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, columns)
            The table; without the columns that are to be predicted.
        y : ignored

        Returns
        -------
        TableEncoder
            Itself.

        Examples
        --------
        >>> import pandas as pd
        >>> from dvip import TableEncoder
        >>> table = pd.DataFrame({"x": [1, 2], "day": ["2020-01-01", "2020-01-02"]})
        >>> TableEncoder().fit(table).left_out_
        (LeftOut(name='day', reason='holds dates or times'),)
        """
        self.__dict__.pop("n_features_in_", None)
        self.partial_fit(X)
        for line in self.warnings_:
            warnings.warn(line, TableWarning, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Looks at the next rows of a table that is too long to look at as a whole.

        What is decided on after the last of them is what `fit` decides on, except that medians of
        more than 200,000 rows are those of a random sample.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, columns)
            Some rows, with all columns of the rows before.
        y : ignored

        Returns
        -------
        TableEncoder
            Itself.

        Examples
        --------
        >>> import pandas as pd
        >>> from dvip import TableEncoder
        >>> encoder = TableEncoder()
        >>> for cells in (["a", "b"], ["c", "a"]):
        ...     encoder = encoder.partial_fit(pd.DataFrame({"kind": cells}))
        >>> list(encoder.get_feature_names_out())
        ['kind = a', 'kind = b', 'kind = c']
        """
        first = not hasattr(self, "n_features_in_")
        frame = self._frame(X, reset=first)
        if first:
            self._surveys = {name: ColumnSurvey() for name in frame.columns}
            self._num_rows, self._num_sampled, self._max_rank = 0, 0, LAST_RANK
        elif not self._surveys:
            raise TableError("An encoder that was loaded cannot see more rows: use fit.")
        lacking = [name for name in self._surveys if name not in set(frame.columns)]
        if lacking:
            table = frame.attrs.get("file", "The table")
            raise TableError(f"{table} lacks columns of the rows before it: {quoted(lacking)}.")
        ranks = row_ranks(np.arange(self._num_rows, self._num_rows + len(frame)), SAMPLE_SEED)
        for name, survey in self._surveys.items():
            survey.add(frame[name], ranks, self._max_rank)
        self._num_rows += len(frame)
        self._num_sampled += int((ranks <= self._max_rank).sum())
        self._thin()
        self._decided = None
        return self

    def _thin(self) -> None:
        """Halves the sample for the medians while it is too large."""
        num_columns = max(1, len(self._surveys))
        enough = min(MAX_SAMPLED_ROWS, max(1_000, MAX_SAMPLED_NUMBERS // num_columns))
        while self._num_sampled > 2 * enough:
            self._max_rank //= 2
            self._num_sampled //= 2
            for survey in self._surveys.values():
                survey.thin(self._max_rank)

    def transform(self, X: Any, surprises: Surprises | None = None) -> np.ndarray:
        """The inputs of a model.

        Parameters
        ----------
        X : DataFrame or array of shape (rows, columns)
            Columns of a DataFrame are found by name; others than those of `fit` are ignored.
        surprises : Surprises, optional
            Is told what the training table did not have, of which there is a warning otherwise.

        Returns
        -------
        array of shape (rows, features)

        Examples
        --------
        >>> import pandas as pd
        >>> from dvip import TableEncoder
        >>> encoder = TableEncoder().fit(pd.DataFrame({"share": ["3.5%", "4%"]}))
        >>> encoder.transform(pd.DataFrame({"other": ["a"], "share": ["-1%"]}))
        array([[-1.]])
        """
        columns, _ = self._choices()
        frame = self._frame(X, reset=False, no_rows=True)
        there = set(frame.columns)
        missing = [column.name for column in columns if column.name not in there]
        if missing:
            table = frame.attrs.get("file", "The table")
            raise TableError(f"{table} lacks columns that the model needs: {quoted(missing)}.")
        if surprises is not None:
            return np.hstack([column.encode(frame[column.name], surprises) for column in columns])
        with Surprises.told() as told:
            return np.hstack([column.encode(frame[column.name], told) for column in columns])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """A name for each input.

        Parameters
        ----------
        input_features : ignored but for a check
            Only here as scikit-learn's pipelines pass it.

        Returns
        -------
        array of str
        """
        columns, _ = self._choices()
        _check_feature_names_in(self, input_features)
        names = [name for column in columns for name in column.feature_names]
        return np.array(names, dtype=object)

    @property
    def columns_(self) -> tuple[Column, ...]:
        """The columns that are used, and how."""
        return self._choices()[0]

    @property
    def left_out_(self) -> tuple[LeftOut, ...]:
        """The columns that are not used, and why."""
        return self._choices()[1]

    @property
    def warnings_(self) -> tuple[str, ...]:
        """What may be a mistake in the table, a line each; nothing once it is loaded."""
        numbers = [column.name for column in self.columns_ if isinstance(column, NumberColumn)]
        lines = [self._surveys[name].warning(name) for name in numbers if self._surveys]
        return tuple(line for line in lines if line is not None)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that hold categories."""
        return tuple(column.name for column in self.columns_ if isinstance(column, TextColumn))

    @property
    def mixed_columns(self) -> set[str]:
        """Columns of which some blocks were numbers and some text."""
        return {name for name, survey in self._surveys.items() if survey.is_mixed}

    def _choices(self) -> tuple[tuple[Column, ...], tuple[LeftOut, ...]]:
        """What is decided on, once all rows were seen."""
        check_is_fitted(self)
        if self._decided is None:
            choices = [survey.choose(name) for name, survey in self._surveys.items()]
            used = tuple(column for column in choices if not isinstance(column, LeftOut))
            left_out = tuple(column for column in choices if isinstance(column, LeftOut))
            if not used:
                reasons = [f"{column.name!r} {column.reason}" for column in left_out[:MAX_REASONS]]
                why = "; ".join(reasons) or "none is left"
                raise TableError(f"The table has no column to predict from: {why}.")
            self._decided = used, left_out
        return self._decided

    def _frame(self, X: Any, *, reset: bool, no_rows: bool = False) -> pd.DataFrame:
        """Rows as a DataFrame; columns of an array have no names, and are counted."""
        if isinstance(X, pd.DataFrame):
            repeated = X.columns[X.columns.duplicated()]
            if len(repeated):
                raise TableError(f"The table has several columns named {quoted(repeated)}.")
            if reset or not hasattr(self, "feature_names_in_"):
                validate_data(self, X, reset=reset, skip_check_array=True)
            if not all(isinstance(name, str) for name in X.columns):
                X = X.set_axis([f"x{place}" for place in range(X.shape[1])], axis=1)
            if not (no_rows or len(X)):
                raise TableError("The table has no rows: 0 sample(s) cannot be used.")
            return X
        fewest = 0 if no_rows else 1
        cells = check_array(
            X, dtype=None, ensure_all_finite=False, estimator=self, ensure_min_samples=fewest
        )
        validate_data(self, X, reset=reset, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None)
        frame = pd.DataFrame(cells)
        return frame.set_axis(
            [f"x{place}" for place in range(frame.shape[1])] if names is None else names, axis=1
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold.

        Returns
        -------
        dict
            What `from_json` takes.
        """
        names = getattr(self, "feature_names_in_", None)
        return {
            "columns": [column_to_json(column) for column in self.columns_],
            "left_out": [asdict(column) for column in self.left_out_],
            "names": None if names is None else list(names),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The encoder that `to_json` described.

        Parameters
        ----------
        content : dict
            What `to_json` gave.

        Returns
        -------
        TableEncoder
        """
        try:
            columns = tuple(column_from_json(column) for column in content["columns"])
            left_out = tuple(LeftOut(**column) for column in content["left_out"])
            known = [column.name for column in (*columns, *left_out)]
            names = content.get("names", known)
            if not columns or set(map(str, names or known)) != set(known):
                raise ValueError(names)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(f"The description of the table is damaged: {error!r}.") from error
        return cls()._restored(columns, left_out, names)

    def _restored(
        self,
        columns: tuple[Column, ...],
        left_out: tuple[LeftOut, ...],
        names: list[str] | None,
    ) -> Self:
        self._surveys, self._decided = {}, (columns, left_out)
        self.n_features_in_ = len(columns) + len(left_out)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags
