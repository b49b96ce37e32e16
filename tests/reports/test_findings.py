"""Sentences that are computed from the numbers say what the numbers say."""

from __future__ import annotations

import dataclasses
import re

import pytest
import synthetic_analyses
import synthetic_kinds
from shown import figures, sections

from interp.reports.sections.coefficients import CoefficientRow, Remark, remark_lines, remarks
from interp.reports.sections.implicit import distance_finding
from interp.reports.sections.losses import depth_finding, loss_finding
from interp.reports.sections.remainder import split_finding
from interp.reports.sections.verdict import head, task_sentence
from interp.results import Analysis, Coefficient, Loss, Words

CLEAR = Coefficient(weight=-0.02, output=-0.021, stderr=0.0005, refit=-0.0205, refit_stderr=0.0003, live=True)


def shorts(c: Coefficient) -> list[str]:
    return [remark.short for remark in remarks(c)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"live": False}, ["dead"]),
        ({"undetermined": "because"}, ["undetermined"]),
        ({"output": 0.0001}, ["0 within error"]),
        ({"output": 0.021}, ["signs disagree"]),
        ({"weight": 0.02}, ["signs disagree"]),
        ({"weight": -0.05}, ["estimates differ"]),
        ({"refit": 0.04, "undetermined": "because"}, ["undetermined"]),
        ({"weight": None, "output": None, "stderr": None, "refit": None}, []),
    ],
)
def test_remarks(change: dict[str, object], expected: list[str]) -> None:
    assert shorts(dataclasses.replace(CLEAR, **change)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 9])
def test_remarks_that_differ_in_details_are_one_when_there_are_many(count: int) -> None:
    rows = [
        CoefficientRow(
            layer=layer, symbol="ω_xx", output="1", weight="1", refit="1", live=True,
            remarks=(Remark("undetermined", f"no refit; it trades off against yx of layer {layer}"),),
        )
        for layer in range(count)
    ]  # fmt: skip
    lines = remark_lines(rows)
    if count == 2:
        assert lines[1] == "ω_xx of layer 1, undetermined: no refit; it trades off against yx of layer 1"
    else:
        assert len(lines) == 1 and lines[0].startswith("ω_xx of layer 0, ω_xx of layer 1, ω_xx of layer 2 and 6 more,")
        assert lines[0].endswith("undetermined: no refit; the JSON document has against what each trades off")


def with_losses(network: float | None, recovered: float | None) -> Analysis:
    base = synthetic_analyses.analysis()
    losses = tuple(
        Loss(name=name, label=name, mse=mse, stderr=0.01)
        for name, mse in (("null", 10.0), ("network", network), ("recovered", recovered), ("oracle", 3.0))
    )
    return dataclasses.replace(base, evidence=dataclasses.replace(base.evidence, losses=losses))


@pytest.mark.parametrize(
    ("network", "recovered", "text"),
    [
        (4.0, 4.1, "The recovered algorithm errs by 4.100, the network by 4.000; the best possible is 3.000"),
        (4.0, None, "The network errs by 4.000, predicting zero 10.00; the best possible is 3.000"),
        (None, 4.0, "The network's loss was not measured"),
        # an optimum is 0 beside what predicting zero errs by, not beside a network that diverges
        (1e80, 1e80, "The recovered algorithm errs by 1.000e80, the network by 1.000e80; the best possible is 3.000"),
    ],
)
def test_loss_finding(network: float | None, recovered: float | None, text: str) -> None:
    assert loss_finding(with_losses(network, recovered)) == text


def test_the_task_of_a_network_that_diverges() -> None:
    assert task_sentence(with_losses(1e80, None)).endswith(
        "against 10.00 for predicting zero and 3.000 for the best possible"
    )


def test_numbers_of_another_form_are_told_apart() -> None:
    base = synthetic_analyses.analysis()
    assert base.recovered is not None
    of_gd = dataclasses.replace(base, recovered=dataclasses.replace(base.recovered, family="gd"))
    same, other = (figures(analysis)["coefficients"].description for analysis in (base, of_gd))
    assert other.startswith(same) and "(gd)" in other.removeprefix(same)


def test_loss_finding_prefers_the_paired_excess() -> None:
    text = loss_finding(synthetic_analyses.analysis())
    assert text == "The recovered algorithm stays 0.114 above the best possible error, the network 0.113"
    assert loss_finding(synthetic_analyses.unrecognized()).startswith("The closest family stays 1.08 above")


def paired_losses(*rows: tuple[str, float, float, float]) -> Analysis:
    base = synthetic_analyses.analysis()
    losses = tuple(
        Loss(name=name, label=name, mse=excess, stderr=error, excess=excess, excess_stderr=error, trimmed=trimmed,
             left_out=65)
        for name, excess, error, trimmed in (*rows, ("oracle", 0.0, 0.0, 0.0))
    )  # fmt: skip
    return dataclasses.replace(base, evidence=dataclasses.replace(base.evidence, losses=losses))


def test_a_mean_that_a_few_prompts_decide_says_so() -> None:
    """One prompt of 65536 explodes: the mean is twice what it is without, and known to half of itself."""
    exploding = paired_losses(("network", 0.00373, 0.00002, 0.00367), ("recovered", 0.0067, 0.003, 0.00366))
    assert loss_finding(exploding) == (
        "The recovered algorithm stays 0.007 ± 0.003 above the best possible error, the network 0.00373. Here a few "
        "prompts decide: without the 65 prompts on which each errs most it is 0.00366 and 0.00367"
    )
    even = paired_losses(("network", 0.00373, 0.00002, 0.00367), ("recovered", 0.0067, 0.00002, 0.0066))
    assert "few prompts" not in loss_finding(even) and "±" not in loss_finding(even)
    unsure = paired_losses(("network", 0.1, 0.02, 0.0995), ("recovered", 0.2, 0.02, 0.199))  # few prompts in all
    assert "0.1 ± 0.02" in loss_finding(unsure).replace("0.10 ±", "0.1 ±") and "decide" not in loss_finding(unsure)


def test_depth_finding_names_the_layers_that_raise_the_error() -> None:
    base = synthetic_analyses.analysis()
    assert depth_finding(base).startswith("Every layer lowers the error, from 10.02 to 3.246")
    losses = tuple(Loss(name="", label="", mse=mse, stderr=0.1) for mse in (10.0, 5.0, 6.0, 3.0))
    raised = dataclasses.replace(base, evidence=dataclasses.replace(base.evidence, depth_losses=losses))
    assert depth_finding(raised) == "The error goes from 10.00 to 3.000; layer 1 does not lower it"


def test_distance_finding_names_the_closest_baseline() -> None:
    assert "closest to ridge, true noise (optimal): relative squared distance 0.0087" in distance_finding(
        synthetic_analyses.analysis()
    )


def test_split_finding_is_about_the_worst_layer() -> None:
    base = synthetic_analyses.analysis()
    assert "at least 99.31 %" in split_finding(base) and "at most 0.67 %" in split_finding(base)
    worst = dataclasses.replace(base.layers[1].split, block_scalar=0.2, trace=0.05, residual=0.75)
    layers = (base.layers[0], dataclasses.replace(base.layers[1], split=worst), *base.layers[2:])
    text = split_finding(dataclasses.replace(base, layers=layers))
    assert text.startswith("Layer 1 is the least regular: the four ω account for 20 % of its weights, and 75 % breaks")


def test_status_refuses_before_it_recognizes() -> None:
    tones = {name: head(a).tone for name, a in synthetic_kinds.many().items()}
    assert (tones["diag"], tones["unrecognized"], tones["refused"]) == ("good", "caution", "bad")


def formula(analysis: Analysis) -> tuple[str, ...]:
    return sections(analysis)["formula"].formula


def test_the_formula_has_the_numbers_of_the_recovered_algorithm() -> None:
    analysis = synthetic_analyses.analysis()
    assert analysis.recovered is not None
    lines = formula(analysis)
    assert len(lines) == len(analysis.recovered.updates)
    for line, updates in zip(lines, analysis.recovered.updates, strict=True):
        known = [term.number for update in updates for term in update.terms]
        signed = [
            float(size) * (-1 if sign == "−" else 1) for sign, size in re.findall(r"([+−]) ([\d.]+(?:e-?\d+)?)", line)
        ]
        assert signed == pytest.approx(known, rel=0.05)


def test_the_formula_marks_what_the_data_do_not_determine() -> None:
    lines = formula(synthetic_analyses.disagreeing())
    assert [line.count("^?") for line in lines] == [1, *(0 for _ in lines[1:])]


def test_the_formula_has_only_the_terms_of_its_family() -> None:
    assert all(
        "⟨α, x⟩" in line and "Σ" not in line and "λ" not in line for line in formula(synthetic_analyses.refused())
    )


def test_the_formula_is_that_of_the_family_where_the_layers_show_another_fit() -> None:
    """In a gd network the fit of all four omegas may leave omega_yx loose; the recovered algorithm's is sharp."""
    base = synthetic_analyses.refused()
    loose = {"refit": 3.0, "refit_stderr": 9.0, "undetermined": "its standard error exceeds its size"}
    layers = tuple(
        dataclasses.replace(layer, omega={**layer.omega, "yx": dataclasses.replace(layer.omega["yx"], **loose)})
        for layer in base.layers
    )
    assert formula(dataclasses.replace(base, layers=layers)) == formula(base)


@pytest.mark.parametrize("kind", ["unrecognized", "empty", "all-none"])
def test_no_formula_without_a_family(kind: str) -> None:
    assert formula(synthetic_kinds.many()[kind]) == ()


def test_the_words_of_a_task_are_those_of_the_analysis() -> None:
    base = synthetic_analyses.analysis()
    words = Words(asked="To guess the next move.", error="share of wrong moves", prompt="game")
    facts = dict(head(dataclasses.replace(base, words=words)).facts)
    assert words.asked in facts.values()
    assert any(words.error in text and f"{words.prompt}s" in text for text in facts.values())
    assert words.asked not in dict(head(base).facts).values()
