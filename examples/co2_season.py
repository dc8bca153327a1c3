"""A trend, a season and the rest: carbon dioxide with gaps of years, filled by what is known.

    python examples/co2_season.py

The data are those of statsmodels, where it is installed, or made up after them.
"""

import numpy as np

from dvip import DVIPRegressor


def monthly_co2() -> tuple[np.ndarray, np.ndarray]:
    """Dates in years, and parts per million."""
    try:
        from statsmodels.datasets import co2
    except ImportError:
        years = np.arange(1959, 2002, 1 / 12)
        since = years - 1959
        season = (2.6 + 0.01 * since) * np.sin(2 * np.pi * (years - 0.1))
        season += 0.8 * np.sin(4 * np.pi * years)
        slow = 0.3 * np.sin(2 * np.pi * since / 30)
        noise = 0.3 * np.random.default_rng(0).normal(size=len(years))
        return years, 315.5 + 0.75 * since + 0.0125 * since**2 + season + slow + noise
    series = co2.load_pandas().data["co2"].resample("MS").mean().dropna()
    return (series.index.year + (series.index.month - 0.5) / 12).to_numpy(), series.to_numpy()


def in_gaps(years: np.ndarray) -> np.ndarray:
    """Whether a date is in one of the three gaps of three years."""
    return np.any([(years >= start) & (years < start + 3) for start in (1967, 1981, 1993)], axis=0)


def main(max_iter: int = 5_000) -> dict[str, tuple[float, float]]:
    """Error and coverage in the gaps, by prior."""
    years, ppm = monthly_co2()
    gap = in_gaps(years)
    found = {}
    for prior in ("linear + periodic(period=1) + gp", "bnn"):
        model = DVIPRegressor(prior=prior, inference="vi", n_layers=1, max_iter=max_iter)
        model.fit(years[~gap, None], ppm[~gap])
        predicted = model.predict_dist(years[gap, None])
        low, high = predicted.interval(0.95)
        error = np.sqrt(np.mean(np.square(predicted.mean - ppm[gap])))
        found[prior] = (float(error), float(np.mean((low < ppm[gap]) & (ppm[gap] < high))))
        print(f"{prior}: RMSE {error:.2f} ppm, 95 % intervals hold {found[prior][1]:.0%}")
        if "periodic" in prior:
            season, _ = model.predict_parts(years[:, None])["periodic"]
            print(f"  the season goes from {season.min():.1f} to {season.max():.1f} ppm")
    return found


if __name__ == "__main__":
    main()
