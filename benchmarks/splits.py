"""Training and test rows of real tables that are in no catalogue of dvip, from `DVIP_DATA`.

- `arena/`: tables to choose defaults on, with ten folds. The test rows of fold 0 of airfoil and
  bike are those that scikit-learn-contrib/bde publishes its scores of.
- `gap/`: splits of UCI sets that test on the middle third of one input's range, one split an input
  (Foong et al., 2019; index files of cambridge-mlg/DUN).
"""

import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from dvip.data import Split, load_split

ARENA = ("airfoil", "autompg", "concreteslump", "parkinsons", "elevators", "bike", "kin40k")
MASKED = ("autompg", "concreteslump", "parkinsons", "elevators", "kin40k")
BDE = ("airfoil", "bike")
NOT_INPUTS = ("casual", "registered", "instant", "dteday", "cnt")
# Tables with gaps, and the splits of each: as many as inputs.
GAPS = {"boston": 13, "concrete": 8, "energy": 8, "yacht": 6}


def data_folder() -> Path:
    if "DVIP_DATA" not in os.environ:
        raise SystemExit("Set DVIP_DATA to the folder that holds arena/, gap/ and uci/.")
    return Path(os.environ["DVIP_DATA"])


def arena_split(table: str, fold: int) -> Split:
    """Target last, standardised on the training rows."""
    folder = data_folder() / "arena"
    if table in MASKED:
        inputs, targets = _columns(folder, table)
        mask = pd.read_csv(folder / f"{table}-test-mask.csv.gz", header=None).to_numpy(bool)
        test = mask[:, fold]
        parts = inputs[~test], inputs[test], targets[~test], targets[test]
    else:
        parts = train_test_split(*_columns(folder, table), test_size=0.2, random_state=fold)
    X, test_X, y, test_y = parts
    mean, std = y.mean(), y.std()
    return Split(X, (y - mean) / std, test_X, (test_y - mean) / std)


def bde_split(table: str) -> Split:
    """The published one: inputs are standardised on the training rows, too."""
    split = arena_split(table, 0)
    scaler = StandardScaler().fit(split.inputs)
    inputs, test_inputs = (scaler.transform(X) for X in (split.inputs, split.test_inputs))
    return split._replace(inputs=inputs, test_inputs=test_inputs)


def gap_split(table: str, number: int) -> Split:
    """Without the middle third of one input's range, which is tested; target as it is."""
    return load_split(f"{table}-gap", number)


def arena_rows(table: str) -> tuple[np.ndarray, np.ndarray]:
    """All inputs and targets of a table, as they are."""
    return _columns(data_folder() / "arena", table)


def _columns(folder: Path, table: str) -> tuple[np.ndarray, np.ndarray]:
    if table == "bike":
        rows = pd.read_csv(folder / "bike-hour.csv.gz")
        inputs = rows.drop(columns=[name for name in NOT_INPUTS if name in rows])
        return inputs.to_numpy(float), rows["cnt"].to_numpy(float)
    if table == "airfoil":
        numbers = pd.read_csv(folder / "airfoil.csv").to_numpy(float)
    else:
        numbers = pd.read_csv(folder / f"{table}.csv.gz", header=None).to_numpy(float)
    return numbers[:, :-1], numbers[:, -1]
