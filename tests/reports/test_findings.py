"""Sentences that are computed from the numbers say what the numbers say."""

from __future__ import annotations

import dataclasses
import re

import pytest
import synthetic_analyses
import synthetic_kinds

from interp.reports import findings
from interp.reports.emit.html import coefficient_note, layer_formulas
from interp.reports.loss_findings import depth_finding, loss_finding
from interp.reports.task_in_words import task_in_words
from interp.results import Analysis, Coefficient, Loss, RecoveredOmegas

CLEAR = Coefficient(weight=-0.02, output=-0.021, stderr=0.0005, refit=-0.0205, refit_stderr=0.0003, live=True)


def shorts(c: Coefficient) -> list[str]:
    return [remark.short for remark in findings.remarks(c)]


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
        findings.CoefficientRow(
            layer=layer, symbol="ω_xx", output="1", weight="1", refit="1", live=True,
            remarks=(findings.Remark("undetermined", f"no refit; it trades off against yx of layer {layer}"),),
        )
        for layer in range(count)
    ]  # fmt: skip
    lines = findings.remark_lines(rows)
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
    assert findings.task_sentence(with_losses(1e80, None)).endswith(
        "against 10.00 for predicting zero and 3.000 for the best possible"
    )


def test_numbers_of_another_form_are_told_apart() -> None:
    base = synthetic_analyses.analysis()
    assert coefficient_note(base) is None  # diag, as in the table
    assert base.recovered is not None
    of_gd = dataclasses.replace(base, recovered=dataclasses.replace(base.recovered, family="gd"))
    assert "the recovered algorithm (gd)" in (coefficient_note(of_gd) or "")


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
    assert "closest to ridge, true noise (optimal): relative squared distance 0.0087" in findings.distance_finding(
        synthetic_analyses.analysis()
    )


def test_split_finding_is_about_the_worst_layer() -> None:
    base = synthetic_analyses.analysis()
    assert "at least 99.31 %" in findings.split_finding(base) and "at most 0.67 %" in findings.split_finding(base)
    worst = dataclasses.replace(base.layers[1].split, block_scalar=0.2, trace=0.05, residual=0.75)
    layers = (base.layers[0], dataclasses.replace(base.layers[1], split=worst), *base.layers[2:])
    text = findings.split_finding(dataclasses.replace(base, layers=layers))
    assert text.startswith("Layer 1 is the least regular: the four ω account for 20 % of its weights, and 75 % breaks")


def test_status_refuses_before_it_recognizes() -> None:
    tones = {name: findings.status(a).tone for name, a in synthetic_kinds.many().items()}
    assert (tones["diag"], tones["unrecognized"], tones["refused"]) == ("good", "caution", "bad")


def test_every_sentence_can_be_made_of_every_analysis(any_analysis: Analysis) -> None:
    for name in findings.__all__:
        sentence = getattr(findings, name)
        if name.endswith(("_finding", "_sentence")) or name == "in_words":
            assert isinstance(sentence(any_analysis), str)


def numbers(line: str) -> list[float]:
    """Those of a formula, without the tags: 5.1·10−4 is one."""
    text = re.sub(r"<sub>.*?</sub>|<[^>]*>", "", line).replace("·10", "e").replace("−", "-").replace("\xa0", " ")
    return [float(n.replace(" ", "")) for n in re.findall(r"(?:- )?\b\d[\d.]*(?:e-?\d+)?", text)]


def test_the_formula_has_the_numbers_of_the_recovered_algorithm() -> None:
    analysis = synthetic_analyses.analysis()
    assert isinstance(analysis.recovered, RecoveredOmegas)
    formulas = layer_formulas(analysis.recovered)
    for formula, layer in zip(formulas, analysis.recovered.layers, strict=True):
        shown = [number for line in formula.lines for number in numbers(line)]
        assert shown == pytest.approx([c.value for c in layer.coefficients.values()], rel=0.05)
        assert len(formula.lines) == len({name[0] for name in layer.coefficients})


def test_the_formula_marks_what_the_data_do_not_determine() -> None:
    formulas = layer_formulas(synthetic_analyses.disagreeing().recovered)
    assert [len(formula.doubts) for formula in formulas] == [1, *[0] * (len(formulas) - 1)]
    assert "".join(line for formula in formulas for line in formula.lines).count("<sup>?</sup>") == 1


def test_the_formula_has_only_the_terms_of_its_family() -> None:
    formulas = layer_formulas(synthetic_analyses.refused().recovered)
    assert formulas and all(len(formula.lines) == 1 and len(numbers(formula.lines[0])) == 1 for formula in formulas)


def test_the_formula_is_that_of_the_family_where_the_layers_show_another_fit() -> None:
    """In a gd network the fit of all four omegas may leave omega_yx loose; the recovered algorithm's is sharp."""
    base = synthetic_analyses.refused()
    loose = {"refit": 3.0, "refit_stderr": 9.0, "undetermined": "its standard error exceeds its size"}
    layers = tuple(
        dataclasses.replace(layer, omega={**layer.omega, "yx": dataclasses.replace(layer.omega["yx"], **loose)})
        for layer in base.layers
    )
    assert layer_formulas(dataclasses.replace(base, layers=layers).recovered) == layer_formulas(base.recovered)


@pytest.mark.parametrize("kind", ["unrecognized", "empty", "all-none"])
def test_no_formula_without_a_family(kind: str) -> None:
    assert layer_formulas(synthetic_kinds.many()[kind].recovered) == ()


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        ({"uniform": [0.0, 5.0]}, "The size σ of the noise differs from prompt to prompt, between 0 and 5."),
        ({"choice": [1.0, 3.0]}, "The size σ of the noise is one of 1 and 3."),
        ({"fixed": 0.5}, "The size σ of the noise is 0.5."),
        ({"fixed": 0.0}, "y = ⟨w, x⟩. x has 10 numbers; w is drawn anew for every prompt and never shown."),
        ("damaged", "never shown."),
        ({"uniform": []}, "between —."),
    ],
)
def test_what_is_asked_of_the_network(noise: object, said: str) -> None:
    words = task_in_words({**synthetic_analyses.analysis().task, "noise": noise})
    assert words.startswith("To predict ⟨w, x⟩ for a new x from 20 examples") and words.endswith(said)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"name": "linear_dynamics", "dim": 10, "context": 50, "dynamics": "orthogonal"}, "50 states of 10 numbers"),
        ({"name": "linear_dynamics", "dim": 10, "context": 50, "dynamics": "fixed"}, "the same for all sequences"),
        ({"name": "simple_regression", "context": 20, "noise": {"fixed": 0.3}}, "The size σ of the noise on y is 0.3."),
        ({"name": "matrix_completion", "dim": 6, "context": 7, "outputs": 3, "queries": 2}, "A (7 x 6), B (2 rows)"),
        ({"name": "matrix_completion"}, "from A (— x —)"),
    ],
)
def test_every_task_is_told_to_a_newcomer(task: dict[str, object], said: str) -> None:
    assert said in task_in_words(task)
    assert task_in_words({"name": "<b>"}) == task_in_words({}) == ""
