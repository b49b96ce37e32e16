"""The report as one HTML file that needs nothing else: no network, no server, no other file.

The page holds its style, its scripts, plotly.js and all data. A content security policy lists the scripts by their hash
and allows no connection, so even a name in a checkpoint that smuggled markup past the escaping could not run or send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape

from interp import __version__
from interp.reports import closed_form_findings, findings
from interp.reports.absent import absent_parts, absent_sections, other_notes, why_absent
from interp.reports.causal_figures import causal_figures
from interp.reports.causal_findings import interventions, skipped_checks
from interp.reports.completion_findings import completion_sentences, step_sentence
from interp.reports.emit.html import layer_formulas
from interp.reports.figures import figures, skipped_figures
from interp.reports.heatmaps import heatmaps
from interp.reports.loss_findings import family_error
from interp.reports.numbers import DASH, estimate, interval, number, percent, plain
from interp.reports.open_questions import open_questions
from interp.reports.page import HERE, Page, environment, policy
from interp.reports.probe_figures import probe_figures
from interp.reports.probe_findings import probe_finding, probe_groups
from interp.reports.remainder_findings import drawable, matrix_sentences, remainder_sentences
from interp.reports.sequence_findings import sequence_parts
from interp.reports.task_in_words import task_in_words
from interp.results import Analysis, Figure, ProbeReport, Section

__all__ = ["render_figures", "render_report"]

_SCRIPTS = {
    "report.html": ("page.js", "heat.js", "heatmaps.js"),
    "probes.html": ("page.js",),
    "figures.html": ("page.js",),
}


_POWERS = re.compile(r"(?<![\w.&;#/-])(?P<mantissa>-?\d+(?:\.\d+)?|\([^()]*\))e(?P<power>[+-]?\d+)(?![\w.]*\w)")
_LETTERS = re.compile(r"\b([wp])_k\b")
_OMEGAS = re.compile(r"([ωτ])_([a-z]+(?::[a-z]+)?)")
_INDICES = re.compile(r"\b([A-Za-zΣ]|state|previous|query)_(?:\{([\w+-]{1,8})\}|([jt]|μ+)(?!\w))")
_EXPONENTS = re.compile(r"(?<=[\w)>])\^(-?\d+|T)\b")
_PRODUCTS = re.compile(r"&lt;(\w+), (\w+)&gt;")  # after escaping
_GREEK = {"lambda": "λ", "sigma": "σ", "tau": "τ", "Sigma": "Σ"}


def render_report(result: Analysis | ProbeReport) -> Page:
    """The report; the same result always gives the same text."""
    from plotly.offline import get_plotlyjs  # slow to import, and only reports need it

    template, content = _probes(result) if isinstance(result, ProbeReport) else _analysis(result)
    scripts = [get_plotlyjs(), *((HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS[template])]
    text = _environment().get_template(template).render(
        content,
        checkpoint=result.checkpoint,
        probe_figures=probe_figures(result.probes),
        causal_figures=_causal(result),
        interventions=interventions(result.transplants, result.erasures),
        facts=_facts(result),
        provenance=_flat(result.provenance),
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
    )  # fmt: skip
    return Page(text=text, title=f"Report on {plain(result.checkpoint.name)}")


def render_figures(
    title: str,
    shown: Sequence[Figure],
    *,
    source: str,
    found: Sequence[str] = (),
    parts: Sequence[Section] = (),
    command: str | None = None,
    recorded: Mapping[str, Any] = MappingProxyType({}),
) -> Page:
    """A reproduced paper: what was found, figures, tables, and where it all comes from. ``recorded`` is the provenance
    of the numbers."""
    from plotly.offline import get_plotlyjs

    scripts = [get_plotlyjs(), *((HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS["figures.html"])]
    text = _environment().get_template("figures.html").render(
        checkpoint={"name": title},
        shown=shown,
        found=found,
        parts=parts,
        facts=[
            ("source", source),
            ("tool", f"interp-probe {__version__}"),
            *([("command", command)] if command else []),
            *_flat(recorded),
        ],
        figures={},
        missing={},
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
    )  # fmt: skip
    return Page(text=text, title=title)


def _causal(result: Analysis | ProbeReport) -> tuple[Figure, ...]:
    fits = result.implicit if isinstance(result, ProbeReport) else ()  # an analysis has a table of its own
    return causal_figures(fits, result.transplants, result.erasures)


def _analysis(analysis: Analysis) -> tuple[str, dict[str, Any]]:
    """Template and content of the whole report."""
    formulas, made, drawn = layer_formulas(analysis.recovered), figures(analysis), heatmaps(analysis)
    absent = absent_sections(analysis, made, drawn.why or "")
    return "report.html", {
        "analysis": analysis,
        "status": findings.status(analysis),
        "findings": findings,
        "figures": made,
        "asked": task_in_words(analysis.task),
        "open_questions": open_questions(analysis),
        "missing": skipped_figures(analysis, made),
        "absent": absent,
        "skips": (*absent_parts(absent), *other_notes(analysis, absent)),
        "why_absent": why_absent,
        "family_error": family_error,
        "unexplained": findings.unexplained_sentence(analysis),
        "left": tuple(remainder_sentences(analysis)),
        "completion": completion_sentences(analysis.completion) if analysis.completion is not None else (),
        "steps": step_sentence(analysis.completion) if analysis.completion is not None else "",
        "formulas": formulas,
        "matrices": tuple(matrix_sentences([entry for entry in analysis.preconditioners if drawable(entry)])),
        "closed": closed_form_findings,
        "sequences": sequence_parts(analysis),
        "heatmaps": drawn,
        "doubts": findings.remark_lines(row for row in findings.coefficient_rows(analysis) if row.live),
        "undetermined": any(formula.doubts for formula in formulas),
    }


def _probes(report: ProbeReport) -> tuple[str, dict[str, Any]]:
    """Template and content of a page of probes alone."""
    groups = probe_groups(report.probes)
    unscored = dict.fromkeys(f"{s.target}: {s.reason}" for s in report.probes if s.reason is not None)
    return "probes.html", {
        "result": report,
        "found": [probe_finding(group) for group in groups if group.protocol == "sound"],
        "notes": (*report.checkpoint.notes, *report.notes, *unscored, *skipped_checks(report)),
    }


@cache
def _environment() -> Environment:
    made = environment()
    made.filters |= {
        "estimate": lambda pair: estimate(*pair),
        "interval": lambda pair: interval(*pair),
        "cell": _subscripts,
        "formula": _formula,
        "mathy": _mathy,
        "number": number,
        "percent": percent,
    }
    return made


def _mathy(text: str) -> Markup:
    """The same with 3e-18 as a power of ten and w_k with a subscript, for text that is read rather than copied."""
    return Markup(_LETTERS.sub(r"\1<sub>k</sub>", _POWERS.sub(_power, str(_subscripts(text)))))


def _power(found: re.Match[str]) -> str:
    mantissa, power = found["mantissa"], str(int(found["power"])).replace("-", "−")
    times = "" if mantissa == "1" else f"{mantissa}·"
    return f"{times}10<sup>{power}</sup>"


def _subscripts(text: str) -> Markup:
    """ω_xx and s_{t-1} with subscripts, S^T with its exponent and <x, y> in angle brackets, in text that is escaped
    first. What cannot be printed is made visible."""
    out = _OMEGAS.sub(r"<i>\1</i><sub>\2</sub>", str(escape(plain(text))))
    out = _INDICES.sub(lambda m: f"{m[1]}<sub>{(m[2] or m[3]).replace('-', '−')}</sub>", out)
    out = _EXPONENTS.sub(lambda m: f"<sup>{m[1].replace('-', '−')}</sup>", out)
    return Markup(_PRODUCTS.sub(r"⟨\1, \2⟩", out))


def _formula(text: str) -> Markup:
    """A formula of a probe's target: the same, with Greek letters for their names."""
    return _mathy(re.sub(r"\b(lambda|sigma|tau|Sigma)\b", lambda m: _GREEK[m[1]], text))


def _facts(result: Analysis | ProbeReport) -> list[tuple[str, str]]:
    """What was analysed."""
    checkpoint = result.checkpoint
    read = f"{'-' if checkpoint.readout_sign < 0 else '+'}{checkpoint.readout_channel}"
    channels = ", ".join(f"{name} (size {size})" for name, size in checkpoint.tokens)
    return [
        ("file", checkpoint.name),
        ("sha256", checkpoint.sha256),
        ("layout", f"{checkpoint.layout}, {checkpoint.dtype}"),
        ("network", f"layers: {checkpoint.layers}, heads: {checkpoint.heads}, numbers: {checkpoint.parameters}"),
        ("tokens", channels),
        ("attention", f"keys: {checkpoint.keys}, scale: {checkpoint.scale}"),
        ("residual stream", "yes" if checkpoint.residual else "no"),
        ("clip", DASH if checkpoint.clip is None else f"±{checkpoint.clip:g}"),
        ("prediction", f"{read} of {'every token' if checkpoint.keys == 'causal' else 'the query'}"),
        *((f"task: {name}", value) for name, value in _flat(result.task)),
    ]


def _flat(fields: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for field, value in fields.items():
        name = field.replace("_", " ")
        if isinstance(value, Mapping):
            out += _flat(value, f"{prefix}{name}: ")
        elif isinstance(value, (list, tuple)):
            out.append((f"{prefix}{name}", ", ".join(map(_said, value))))
        else:
            out.append((f"{prefix}{name}", _said(value)))
    return out


def _said(value: Any) -> str:
    """A field of a document for people: no more digits than tell two values apart, and no code."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
