"""One step of gradient descent on the pairs of states seen so far, as code and as formulas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interp.reports.certificate_text import Account, fitted_numbers
from interp.reports.emitted_heads import applied, sequence_function
from interp.reports.emitted_latex import LatexPart, latex_matrix, latex_number
from interp.reports.emitted_python import Library, PythonPart, array_constant
from interp.reports.numbers import estimate
from interp.results import Certificate, RecoveredStep

__all__ = ["account", "latex_part", "python_part"]


def _of(certificate: Certificate) -> RecoveredStep:
    assert isinstance(certificate.recovered, RecoveredStep)
    return certificate.recovered


def account(certificate: Certificate) -> Account:
    clip = certificate.checkpoint.clip
    left = None if clip is None else ("left out", f"the network's clip of +-{clip:g}; sequences that meet it count")
    return Account(fit=fitted_numbers(certificate), clip=left)


def python_part(certificate: Certificate, library: Library) -> PythonPart:
    recovered = _of(certificate)
    error = "" if recovered.eta_stderr is None else f"  # +- {recovered.eta_stderr:.1g}"
    numbers = [
        f"ETA = {recovered.eta!r}{error}",
        "# A number stands for that number times the identity.",
        *_constant("H", recovered.held, library),
        *_constant("M", recovered.decay, library),
    ]
    body = [
        "s = states" if library.name == "torch" else "s = np.asarray(states, dtype=float)",
        f"known = {library.alias}.tril(s @ s.T, -1)  # <s_t, s_j> for j < t",
        "descent = known[:, :-1] @ s[1:]  # B_t s_t",
        "curvature = known @ s  # A_t s_t",
        f"return {applied('H', 's', recovered.held)} + ETA * descent - {applied('M', 'curvature', recovered.decay)}",
    ]
    return PythonPart(
        algorithm=(
            "It predicts the next state of a linear system at every time t, from the states s_0 .. s_t, by one step of",
            "gradient descent on |Y_t - W X_t|^2 / 2 with X_t = [s_0 .. s_(t-1)], Y_t = [s_1 .. s_t]:",
            "",
            "    s_(t+1)  ~  H s_t + eta B_t s_t - M A_t s_t",
            "",
            "with A_t = X_t X_t^T, B_t = Y_t X_t^T. M = eta W_0 where W_0 is what the descent starts from.",
        ),
        numbers="\n".join([*numbers, "", ""]),
        function=sequence_function(recovered, library, body),
        examples="states s_0, s_1, ..",
        call="predict(prompt)",
        scalar=False,
    )


def _constant(name: str, value: float | list[Any], library: Library) -> list[str]:
    return array_constant(name, value, library) if isinstance(value, list) else [f"{name} = {float(value)!r}"]


def latex_part(certificate: Certificate) -> LatexPart:
    recovered = _of(certificate)
    return LatexPart(
        algorithm=(
            r"It predicts the next state of a linear system at every time $t$, from the states $s_0, \dots, s_t$,",
            r"by one step of gradient descent on $\tfrac{1}{2} |Y_t - W X_t|^2$ with $X_t = [s_0 \dots s_{t-1}]$ and",
            r"$Y_t = [s_1 \dots s_t]$:",
            r"\begin{align*}",
            r"s_{t+1} &\approx H s_t + \eta B_t s_t - M A_t s_t",
            r"\end{align*}",
            r"with $A_t = X_t X_t^\top$ and $B_t = Y_t X_t^\top$; $M = \eta W_0$ where $W_0$ is what the descent",
            r"starts from.",
        ),
        numbers=tuple(_latex_numbers(recovered)),
    )


def _latex_numbers(recovered: RecoveredStep) -> Iterator[str]:
    eta = estimate(recovered.eta, recovered.eta_stderr).replace("±", r"\pm ")
    yield rf"$\eta = {_power(eta)}$."
    for name, value in (("H", recovered.held), ("M", recovered.decay)):
        if isinstance(value, list):
            yield from latex_matrix(name, value)
        else:
            yield rf"${name} = {latex_number(value)}\, I$."


def _power(text: str) -> str:
    mantissa, _, power = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{power}}}" if power else mantissa
