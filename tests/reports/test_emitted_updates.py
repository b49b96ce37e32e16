"""A family that this package does not know is emitted from its updates alone, in every language."""

from __future__ import annotations

import emitting
import numpy as np
import pytest

from interp.errors import LayoutError, UsageError
from interp.reports.emit import LANGUAGES, emitted, register_language
from interp.results import Certificate, Channel, Factor, Recovered, RecoveredArray, RecoveredCoefficient, Term, Update
from interp.results.plain_data import from_plain, to_plain

DIM, CONTEXT = 3, 6
MATRIX = [[0.1, 0.02, 0.0], [0.0, 0.05, 0.03], [-0.04, 0.0, 0.08]]


def toy(**changes: object) -> Recovered:
    """Two unlike layers on tokens (x, y, 0): the third channel gathers the second moment times a matrix times x and is
    read; the second layer moves y by what was gathered, and forgets it."""
    token = {name: Factor(name="token", of=(name,)) for name in ("x", "y", "gathered")}
    moments = {pair: Factor(name="moment", of=pair) for pair in (("x", "x"), ("y", "x"), ("x", "gathered"))}
    inside = Factor(name="coefficient")
    first = Term(
        name="G", factors=(moments["x", "x"], inside, token["x"]), coefficient=RecoveredArray(value=MATRIX), sign=-1
    )
    step = Term(name="step", factors=(moments["y", "x"], token["x"]), coefficient=RecoveredCoefficient(value=-0.07))
    second = Term(
        name="again",
        factors=(moments["y", "x"], moments["x", "gathered"], token["gathered"]),
        coefficient=RecoveredCoefficient(value=0.03, stderr=0.001, undetermined="a reason"),
    )
    centred = Term(name="centre", factors=(Factor(name="deviation", of=("x",)),), sign=-1)
    fields = {
        "family": "toy", "parameters": 11, "dim": DIM, "context": CONTEXT, "scale": "1/n", "sign": -1,
        "tokens": (
            Channel(name="x", content="input", size=DIM), Channel(name="y", content="label", size=1),
            Channel(name="gathered", content="input", size=DIM),
        ),
        "updates": (
            (Update(channel="y", terms=(step,)), Update(channel="gathered", terms=(first,), kept=False)),
            (Update(channel="y", terms=(second,)), Update(channel="x", terms=(centred,))),
        ),
    }  # fmt: skip
    return Recovered(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


def expected(X: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    x, labels, n = np.vstack([X, query]), np.append(y, 0.0), len(X)
    Sigma, alpha = X.T @ X / n, X.T @ y / n
    gathered = np.array([-Sigma @ np.array(MATRIX) @ row for row in x])
    labels = labels - 0.07 * x @ alpha
    cross, alpha = x[:n].T @ gathered[:n] / n, x[:n].T @ labels[:n] / n
    labels = labels + 0.03 * np.array([alpha @ cross @ row for row in gathered])
    return float(-labels[n])


def certificate(algorithm: Recovered) -> Certificate:
    tokens = np.random.default_rng(1).normal(size=(3, CONTEXT + 1, DIM + 1)).astype(np.float32).astype(float)
    tokens[:, -1, -1] = 0.0
    predictions = np.array([expected(t[:-1, :-1], t[:-1, -1], t[-1, :-1]) for t in tokens])
    return emitting.certificate(algorithm, tokens, predictions, {"name": "noisy_regression", "dim": DIM})


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_family_from_outside_is_emitted_and_checks_itself(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = emitting.load(emitted(certificate(toy()), library))
    assert made["check"]() and capsys.readouterr().out.count("by 0.25 in the rms") == 3
    emitting.assert_balanced(emitted(certificate(toy()), "latex"))


@pytest.mark.parametrize("language", ["text", "html", "latex"])
def test_every_number_is_written(language: str) -> None:
    text = emitted(certificate(toy()), language)
    for number in (0.07, 0.03, 0.02, 0.08):
        assert f"{number:g}" in text


def test_it_survives_json() -> None:
    algorithm = toy()
    assert from_plain(Recovered, to_plain(algorithm), "recovered") == algorithm
    assert algorithm.equation.count("←") == 3


def test_terms_must_be_whole() -> None:
    wrong = Term(name="wrong", factors=(Factor(name="token", of=("z",)),))
    with pytest.raises(LayoutError, match="no token has"):
        toy(updates=((Update(channel="y", terms=(wrong,)),),))
    wrong = Term(name="wrong", factors=(Factor(name="coefficient"), Factor(name="token", of=("x",))))
    with pytest.raises(LayoutError, match="array"):
        toy(updates=((Update(channel="x", terms=(wrong,)),),))


def test_a_language_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.reports.emit.languages.LANGUAGES", dict(LANGUAGES))
    with pytest.raises(UsageError, match="already"):
        register_language("numpy")(lambda certificate: "")
    register_language("families")(lambda certificate: certificate.recovered.family)
    assert emitted(certificate(toy()), "families") == "toy"
