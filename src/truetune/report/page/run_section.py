"""The page's section on a run, or on two: curves with the findings at their steps, and what is
known of the runs.

Findings that happened at a step are pinned into the charts there, so that cause and effect are seen together. Of two
runs the settings that differ come first: they are the likely reason for whatever else does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from truetune.report.figure_as_characters_or_svg import legend_key_svg
from truetune.report.page.curve_charts import panel_charts_other_charts_and_left_out
from truetune.report.page.findings_section import findings_with_anchors
from truetune.report.page.page_section import Result, Section, render_template
from truetune.report.visible_text import escape_invisible_characters

RUN_LETTERS = "AB"
RunJson = Mapping[str, Any]


def run_section(result: Result) -> Section | None:
    """The section of the curves and facts of runs; None of results without any."""
    runs: Sequence[RunJson] = result.get("runs") or ()
    if not runs:
        return None
    main_charts, others, left_out = panel_charts_other_charts_and_left_out(runs)
    pins = list(_findings_to_pin_into_charts(runs, result))
    # With one run nothing has to be told apart, and no letter is needed.
    names = (
        [f"{RUN_LETTERS[number]} {run['name']}" for number, run in enumerate(runs)]
        if len(runs) > 1
        else [""]
    )
    return Section(
        "run",
        "Runs" if len(runs) > 1 else "Run",
        render_template(
            "run.html.jinja",
            runs=runs,
            names=names,
            told=[
                _chart_template_values(chart, number) for number, chart in enumerate(main_charts)
            ],
            others=[
                _chart_template_values(chart, number)
                for number, chart in enumerate(others, len(main_charts))
            ],
            left_out=left_out,
            pins=pins,
            facts=_run_facts(runs),
            differs=list(_differing_settings(runs)),
            shared=len(_shared_settings(runs)),
        ),
        {
            "names": [escape_invisible_characters(name) for name in names],
            "pins": pins,
            "charts": [chart.script_values() for chart in (*main_charts, *others)],
        },
    )


def _chart_template_values(chart: Any, number: int) -> dict[str, Any]:
    """A chart as the template draws it."""
    lines = [
        {"key": Markup(legend_key_svg(line.number, line.dash)), "name": line.name, "run": line.run}
        for line in chart.lines
    ]
    return {"number": number, "title": chart.title, "svg": Markup(chart.svg()), "lines": lines}


def _findings_to_pin_into_charts(
    runs: Sequence[RunJson], result: Result
) -> Iterator[dict[str, Any]]:
    """Findings to pin into the charts, by step, those on the whole run last, each with its link."""
    places = _anchors_by_finding(result)
    pins = []
    for number, run in enumerate(runs):
        for pin in run.get("pins", ()):
            anchors = places.get((pin["code"], pin["message"]))
            letter = RUN_LETTERS[number] if len(runs) > 1 else ""
            # Two runs may have the same finding: each pin takes the next anchor of that
            # message.
            pins.append({**pin, "run": letter, "href": anchors.pop(0) if anchors else None})
    stepped = [pin for pin in pins if pin["step"] is not None]
    # Problems before notes of the same step.
    yield from sorted(stepped, key=lambda pin: (pin["step"], pin["severity"] != "error"))
    yield from (pin for pin in pins if pin["step"] is None)


def _anchors_by_finding(result: Result) -> dict[tuple[str, str], list[str]]:
    """(code, message) of findings -> their anchors in the page."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding, anchor in findings_with_anchors(result):
        places.setdefault((finding["code"], finding["message"]), []).append(anchor)
    return places


def _run_facts(runs: Sequence[RunJson]) -> list[tuple[str, list[str]]]:
    """(name, what each run says) of every fact of the runs."""
    names = dict.fromkeys(name for run in runs for name in run["facts"])
    return [(name, [str(run["facts"].get(name, "")) for run in runs]) for name in names]


def _differing_settings(runs: Sequence[RunJson]) -> Iterator[tuple[str, list[str]]]:
    """(name, values) of the settings that all runs record and that differ."""
    for name in _shared_settings(runs):
        values = [str(run["settings"][name]) for run in runs]
        if len(set(values)) > 1:
            yield name, values


def _shared_settings(runs: Sequence[RunJson]) -> list[str]:
    """Names of the settings that all runs record, sorted."""
    # A setting that one run does not tell of is not known to differ.
    return sorted(set.intersection(*(set(run["settings"]) for run in runs)))
