"""More rows than memory: a folder of Parquet files, read as they are needed.

Memory does not grow with the number of rows, and a step takes as long as with arrays.

    python examples/stream_a_folder.py
"""

from pathlib import Path

import numpy as np
import pandas as pd

from dvip import DVIPRegressor, open_source

folder = Path("measurements")
folder.mkdir(exist_ok=True)


def rows(seed, number):
    """Some rows, as a table."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(random.normal(size=(number, 3)), columns=["a", "b", "c"])
    table["y"] = np.sin(2 * table["a"]) + table["b"] * table["c"] + 0.1 * random.normal(size=number)
    return table


for part in range(5):
    rows(part, 40_000).to_parquet(folder / f"{part}.parquet")

source = open_source(folder, target="y")
model = DVIPRegressor(inference="vi", n_layers=2, max_iter=3_000).fit(source)

test = rows(seed=100, number=5_000)
predicted = model.predict_dist(test[["a", "b", "c"]])
error = np.sqrt(np.mean(np.square(predicted.mean - test["y"])))
low, high = predicted.interval(0.9)
inside = np.mean((low < test["y"]) & (test["y"] < high))
print("200,000 rows in 5 files, 3,000 steps of 100 rows: each row was seen 1.5 times")
print(
    f"new rows: RMSE {error:.3f} (the noise is 0.1, the target's deviation {test['y'].std():.2f})"
)
print(f"90 % intervals hold {inside:.0%}")
