"""Pictures of models and of how good they are, in scikit-learn's way."""

from dvip.plots.effects import EffectDisplay, column_importances
from dvip.plots.functions import FunctionDrawsDisplay, PredictionDisplay, SurfaceDisplay
from dvip.plots.honesty import CalibrationDisplay, ReliabilityDisplay, calibration_figure
from dvip.plots.pictures import check_picture, image, write_picture
from dvip.plots.prior_draws import prior_figure
from dvip.plots.rows import BoundDisplay, MeasuredDisplay, VarianceDisplay

__all__ = [
    "BoundDisplay",
    "CalibrationDisplay",
    "EffectDisplay",
    "FunctionDrawsDisplay",
    "MeasuredDisplay",
    "PredictionDisplay",
    "ReliabilityDisplay",
    "SurfaceDisplay",
    "VarianceDisplay",
    "calibration_figure",
    "check_picture",
    "column_importances",
    "image",
    "prior_figure",
    "write_picture",
]
