"""A gradient method of a few steps for simple regression, as code and as formulas."""

from __future__ import annotations

from collections.abc import Iterator

from interp.reports.certificate_text import Account, fitted_numbers
from interp.reports.emitted_closed_form import simple_function
from interp.reports.emitted_latex import LatexPart, latex_matrix, latex_number
from interp.reports.emitted_python import Library, PythonPart, array_constant
from interp.results import Certificate, RecoveredDescent

__all__ = ["account", "latex_part", "python_part"]


def _of(certificate: Certificate) -> RecoveredDescent:
    assert isinstance(certificate.recovered, RecoveredDescent)
    return certificate.recovered


def account(certificate: Certificate) -> Account:
    return Account(fit=fitted_numbers(certificate), clip=None)


def _conditions(recovered: RecoveredDescent) -> bool:
    """Does it transform the inputs between steps?"""
    return any(value for _, C in recovered.steps for row in C for value in row)


def python_part(certificate: Certificate, library: Library) -> PythonPart:
    recovered = _of(certificate)
    keys = "the examples" if recovered.keys == "context" else "the examples and the query, whose y is 0"
    numbers = [
        "# What x and y are divided by.",
        f"X_UNIT, Y_UNIT = {recovered.x_unit!r}, {recovered.y_unit!r}",
        "# The matrices of every step.",
        *(line for k, (A, _) in enumerate(recovered.steps) for line in array_constant(f"A_{k}", A, library)),
    ]
    count = range(len(recovered.steps))
    if _conditions(recovered):
        numbers += [line for k, (_, C) in enumerate(recovered.steps) for line in array_constant(f"C_{k}", C, library)]
        pairs, loop = ", ".join(f"(A_{k}, C_{k})" for k in count), "for A, C in STEPS:"
        update = (
            f"    T = {library.alias}.eye(2{', dtype=x.dtype' if library.name == 'torch' else ''}) + C @ Sigma",
            "    alpha = T @ (alpha - Sigma @ step)",
            "    query, Sigma = T @ query, T @ Sigma @ T.T",
        )
    else:
        pairs, loop = ", ".join(f"A_{k}" for k in count) + ",", "for A in STEPS:"
        update = ("    alpha = alpha - Sigma @ step",)
    numbers += [f"STEPS = ({pairs})", "", ""]
    one = "x_query * x[:1] ** 0" if library.name == "torch" else "x_query"
    join = "torch.cat([{0}])" if library.name == "torch" else "np.append({0})"
    asked = (
        [f"x, y = {join.format(f'x, {one}')}, {join.format('y, 0 * y[:1]' if library.name == 'torch' else 'y, 0.0')}"]
        if recovered.keys == "all"
        else []
    )
    body = [
        "last = x_query / X_UNIT",
        *asked,
        f"phi = {library.alias}.stack([x**0, x / X_UNIT])",
        f"query = {library.alias}.stack([last**0, last])"
        if library.name == "torch"
        else "query = np.array([1.0, last])",
        "Sigma, alpha = phi @ phi.T / len(x), phi @ y / Y_UNIT / len(x)",
        "total = 0.0",
        loop,
        "    step = A @ alpha",
        "    total = total + step @ query",
        *update,
        "return Y_UNIT * total",
    ]
    between = ",  then phi <- (I + C Sigma) phi" if _conditions(recovered) else ""
    return PythonPart(
        algorithm=(
            f"It takes {len(recovered.steps)} steps from w = 0, phi being (1, x) and the prediction <w, phi>:",
            "",
            f"    w  <-  w + A (alpha - Sigma w){between}",
            "",
            "with Sigma = mean phi phi^T and alpha = mean phi y over",
            f"{keys}, x and y in units of their own.",
        ),
        numbers="\n".join(numbers),
        function=simple_function(body, recovered.context, library),
        examples="rows (x, y), the query last",
        call="predict(prompt[:-1, 0], prompt[:-1, 1], prompt[-1, 0])",
        scalar=True,
    )


def latex_part(certificate: Certificate) -> LatexPart:
    recovered = _of(certificate)
    keys = "the examples" if recovered.keys == "context" else "the examples and the query, whose $y$ is 0"
    between = r"\,, \quad \varphi \leftarrow (I + C_k \Sigma) \varphi" if _conditions(recovered) else ""
    return LatexPart(
        algorithm=(
            rf"It takes {len(recovered.steps)} steps from $w = 0$, $\varphi$ being $(1, x)$ and the prediction",
            r"$\langle w, \varphi \rangle$:",
            r"\begin{align*}",
            rf"w &\leftarrow w + A_k (\alpha - \Sigma w){between}",
            r"\end{align*}",
            r"with $\Sigma$ the mean of $\varphi \varphi^\top$ and $\alpha$ that of $\varphi y$ over",
            rf"{keys}, $x$ in units of ${latex_number(recovered.x_unit)}$, $y$ of ${latex_number(recovered.y_unit)}$.",
        ),
        numbers=tuple(_latex_numbers(recovered)),
    )


def _latex_numbers(recovered: RecoveredDescent) -> Iterator[str]:
    for k, (A, C) in enumerate(recovered.steps):
        yield from latex_matrix(f"A_{{{k}}}", A)
        if _conditions(recovered):
            yield from latex_matrix(f"C_{{{k}}}", C)
