"""A model looked at: are its intervals honest, and what does a column do?

The rows are patients, the target is how a disease went on. Left: the share of unseen rows in
intervals against the share that they promise; the grey band is what chance does to honest ones.
These are a little too narrow. Right: the effect of the body-mass index.

    python examples/look_at_a_model.py
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from dvip import DVIPRegressor
from dvip.metrics import regression_metrics
from dvip.plots import CalibrationDisplay, EffectDisplay, MeasuredDisplay, column_importances

patients = load_diabetes(as_frame=True, scaled=False).frame
train, test = train_test_split(patients, test_size=0.4, random_state=0)
X, y = test.drop(columns="target"), test["target"]

# A tenth of the steps that it would take: half a minute instead of more.
model = DVIPRegressor(max_iter=500, random_state=0).fit(
    train.drop(columns="target"), train["target"]
)

for name, value in regression_metrics(model.predict_dist(X), y.to_numpy()).items():
    print(f"{name:12} {value:8.3f}")
for name, importance in column_importances(model, X)[:3].items():
    print(f"shuffling {name} changes predictions by {importance:.0%} of how much they vary")

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
CalibrationDisplay.from_estimator(model, X, y, ax=axes[0])
MeasuredDisplay.from_estimator(model, X, y, ax=axes[1])
EffectDisplay.from_estimator(model, X, "bmi", n_functions=30, ax=axes[2])
figure.savefig("model.png", dpi=110)
