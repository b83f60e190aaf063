"""How much sooner answers come, by category and mode, as bars with a line where nothing is gained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotfish.bench.plots import as_it_is, picture
from pilotfish.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN, OVERALL = "plain", "overall"
COLOURS = {"suffix": "tab:cyan", "model": "tab:green", "auto": "tab:blue"}
WIDTH = 0.8
"""Of the bars of one category together."""

LONG_NAME = 12
"""Names of more characters stand aslant."""


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Write a picture of a report as `bench speed --json` prints it; the format follows the file's ending.

    Bars are ratios of decode seconds; the lines on those of all prompts are their 95 % intervals.

    Raises
    ------
    UsageError
        Not such a report, nothing in it that is compared with plain decoding, or as `picture`.
    """
    try:
        groups = [*report["categories"].values(), report["overall"]]
        names = [*report["categories"], OVERALL]
        modes = [mode for mode in report["overall"] if mode != PLAIN]
        ratios = {mode: [_number(rates[mode]["ratio"]) for rates in groups] for mode in modes}
        intervals = {mode: report["overall"][mode]["ratio_ci95"] for mode in modes}
        ends = {mode: [float(end) for end in ends] for mode, ends in intervals.items() if ends is not None}
        title, note = _title(report), _note(report)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"this is no report of bench speed: {type(error).__name__}: {error}",
            "give what pilotfish bench speed --json has printed",
        ) from error
    if not modes:
        raise UsageError("the report has plain decoding only", "measure other modes too")
    each = WIDTH / len(modes)
    with picture(path, max(7.0, 1.2 + 1.1 * len(groups))) as axes:
        for number, mode in enumerate(modes):
            places = [group + (number - (len(modes) - 1) / 2) * each for group in range(len(groups))]
            bars = axes.bar(places, ratios[mode], 0.92 * each, label=mode, color=COLOURS.get(mode))
            labels = [f"{ratio:.2f}" if ratio else "none" for ratio in ratios[mode]]
            axes.bar_label(bars, labels if mode not in ends else [*labels[:-1], ""], padding=2, fontsize=8)
            if mode in ends:
                low, high = ends[mode]
                axes.plot([places[-1]] * 2, [low, high], color="black", linewidth=1)
                above = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "fontsize": 8}
                axes.annotate(labels[-1], (places[-1], high), **above)
        axes.axhline(1, color="tab:red", linestyle="--", linewidth=1, label="plain decoding")
        axes.axvline(len(groups) - 1.5, color="lightgrey", linewidth=1)
        tilted = {"rotation": 20, "ha": "right"} if max(map(len, names)) > LONG_NAME else {}
        axes.set_xticks(range(len(groups)), [as_it_is(name) for name in names], **tilted)
        axes.set_ylabel("times as fast as plain decoding")
        axes.set_xlabel(note)
        axes.set_title(as_it_is(title), fontsize=10)
        axes.margins(y=0.12)
        axes.figure.legend(ncols=len(modes) + 1, fontsize=8, loc="outside lower center")


def _number(ratio: object) -> float:
    """Return a ratio; no time was taken where there is none, so there is no bar."""
    return 0.0 if ratio is None else float(ratio)  # type: ignore[arg-type]


def _title(report: Mapping[str, Any]) -> str:
    machine, settings = report["machine"], report["settings"]
    drafts = [draft["name"] for draft in report["drafts"]]
    return (
        f"{report['model']['name']}, drafts: {', '.join(drafts)}; {settings['prompts']}\n"
        f"{machine['cpu']}, {machine['isa']}, {machine['threads']} threads, "
        f"temperature {settings['temperature']:g}"
    )


def _note(report: Mapping[str, Any]) -> str:
    again = report["plain_vs_plain"]
    if again is None:
        return f"{len(report['prompts'])} prompts"
    quiet = "" if report["valid"] else ", so the machine was not quiet"
    return f"{len(report['prompts'])} prompts; plain decoding against itself: {again:.3f}{quiet}"
