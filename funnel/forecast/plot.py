"""Draw the forecast's band."""

from funnel.forecast.band import Forecast
from funnel.target.shape import size_text
from trajectory.report.canvas import BASE, FAILED, Picture, sheet


def forecast_picture(forecast: Forecast) -> Picture:
    """Draw the forecast."""
    figure = sheet(3.9)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(
        lambda tokens, _: size_text(round(tokens)) if tokens >= 1 else ""
    )
    axes.xaxis.set_minor_formatter(lambda _tokens, _: "")
    points = forecast.points
    tokens, color = [point.tokens for point in points], BASE.light
    low, high = [point.low_bpb for point in points], [point.high_bpb for point in points]
    axes.fill_between(tokens, low, high, color=color, alpha=0.25, linewidth=0, label="forecast")
    middle = [point.middle_bpb for point in points]
    axes.plot(tokens, middle, color=color, linestyle="--", linewidth=1, label="its middle")
    if tokens[0] <= forecast.first_day_tokens <= tokens[-1]:
        axes.axvline(forecast.first_day_tokens, color=FAILED.light, linestyle=":", label="24 h")
    axes.set_xlabel("training tokens")
    axes.set_ylabel("training loss, bits per byte")
    axes.legend(loc="best")
    return Picture("forecast", "The forecast of the large run's training loss.", figure)
