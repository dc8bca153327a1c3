"""Draws the displays of everyday.md: diabetes patients, and a wave over one input."""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import train_test_split

from dvip import DVIPClassifier, DVIPRegressor
from dvip.plots import (
    BoundDisplay,
    CalibrationDisplay,
    EffectDisplay,
    FunctionDrawsDisplay,
    MeasuredDisplay,
    PredictionDisplay,
    ReliabilityDisplay,
    SurfaceDisplay,
    VarianceDisplay,
)

FOLDER = Path(__file__).parent


def panels(rows: int, columns: int) -> tuple[Figure, list]:
    """A figure and its axes."""
    figure = Figure(figsize=(11, 3.3 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


random = np.random.default_rng(0)
wave = pd.DataFrame({"time": np.sort(random.uniform(-3, 3, 150))})
height = np.sin(2 * wave["time"]) + (0.1 + 0.1 * wave["time"].abs()) * random.normal(size=150)
one = DVIPRegressor(random_state=0).fit(wave, height)
one.target_names_ = ("height",)
figure, axes = panels(1, 3)
PredictionDisplay.from_estimator(one, wave, height, ax=axes[0])
FunctionDrawsDisplay.from_estimator(one, wave, ax=axes[1])
VarianceDisplay.from_estimator(one, wave, feature="time", ax=axes[2])
figure.savefig(FOLDER / "everyday-curves.png", dpi=100)

patients = load_diabetes(as_frame=True, scaled=False).frame
patients["sex"] = patients["sex"].map({1: "male", 2: "female"})
train, test = train_test_split(patients, random_state=0)
model = DVIPRegressor(max_iter=1_000, random_state=0)
model.fit(train.drop(columns="target"), train["target"])
model.target_names_ = ("progression",)
X, y = test.drop(columns="target"), test["target"]
figure, axes = panels(3, 3)
MeasuredDisplay.from_estimator(model, X, y, ax=axes[0])
CalibrationDisplay.from_estimator(model, X, y, ax=axes[1])
CalibrationDisplay.from_estimator(model, X, y, kind="pit", ax=axes[2])
EffectDisplay.from_estimator(model, X, "bmi", ax=axes[3])
EffectDisplay.from_estimator(model, X, "sex", ax=axes[4])
SurfaceDisplay.from_estimator(model, X, features=("bmi", "bp"), ax=axes[5])
BoundDisplay.from_estimator(model, ax=axes[6])
labels = load_iris(as_frame=True)
classes = DVIPClassifier(max_iter=300, random_state=0).fit(labels.data[::2], labels.target[::2])
ReliabilityDisplay.from_estimator(classes, labels.data[1::2], labels.target[1::2], ax=axes[7])
EffectDisplay.from_estimator(classes, labels.data, "petal length (cm)", target=1, ax=axes[8])
figure.savefig(FOLDER / "everyday-displays.png", dpi=100)
