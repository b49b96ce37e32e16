"""The closed form of simple regression as code and as a formula: one division, no numbers."""

from __future__ import annotations

from interp.reports.certificate_text import Account
from interp.reports.emitted_latex import LatexPart
from interp.reports.emitted_python import Library, PythonPart, indented
from interp.results import Certificate, RecoveredForm

__all__ = ["account", "latex_part", "python_part", "simple_function"]


def _of(certificate: Certificate) -> RecoveredForm:
    assert isinstance(certificate.recovered, RecoveredForm)
    return certificate.recovered


def account(certificate: Certificate) -> Account:
    return Account(fit="the formula has no numbers; nothing is fitted", clip=None)


def simple_function(body: list[str], context: int, library: Library) -> str:
    """The function of x, y and x_query that does ``body`` with them as arrays."""
    arrays = "x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)"
    head = [
        "def predict(x, y, x_query):",
        '    """The prediction at ``x_query``, a number, from the examples ``x`` (n,) and their labels ``y`` (n,).',
        "",
        f"    {library.note}",
        f"    Recovered with n = {context}.",
        '    """',
    ]
    return "\n".join([*head, *indented([*([arrays] if library.name == "numpy" else []), *body]), "", ""])


def python_part(certificate: Certificate, library: Library) -> PythonPart:
    recovered = _of(certificate)
    said = [
        "It is simple linear regression in closed form. With the means xbar and ybar of the examples, the variance V",
        "of x and its covariance C with y, the prediction at u is",
        "",
        f"    {'(1 - h) (n + 1) / n  ' if recovered.shrunken else ''}(ybar + (C / V) (u - xbar))",
    ]
    body = [
        "mean_x, mean_y = x.mean(), y.mean()",
        "V = ((x - mean_x) ** 2).mean()",
        "C = ((x - mean_x) * (y - mean_y)).mean()",
        "away = x_query - mean_x",
    ]
    if recovered.shrunken:
        said += [
            "",
            "where h is the leverage of the query among all n + 1 points: what the sums give that also run over the",
            "query, with y = 0.",
        ]
        body += [
            "line = mean_y + C / V * away",
            "n = len(x)",
            "h = 1 / (n + 1) + (away * n / (n + 1)) ** 2 / (n * V + away**2 * n / (n + 1))",
            "return (1 - h) * (n + 1) / n * line",
        ]
    else:
        body.append("return mean_y + C / V * away")
    return PythonPart(
        algorithm=tuple(said),
        numbers="",
        function=simple_function(body, recovered.context, library),
        examples="rows (x, y), the query last",
        call="predict(prompt[:-1, 0], prompt[:-1, 1], prompt[-1, 0])",
        scalar=True,
    )


def latex_part(certificate: Certificate) -> LatexPart:
    recovered = _of(certificate)
    factor = r"(1 - h) \, \frac{n + 1}{n} \, " if recovered.shrunken else ""
    leverage = (
        r"Here $h = \frac{1}{n + 1} + \frac{(u - m)^2}{\sum (x - m)^2}$, with $m$ the mean of $x$ and the sum over all",
        r"$n + 1$ points, is the leverage of the query: what the sums give that also run over the query, with $y = 0$.",
    )
    return LatexPart(
        algorithm=(
            r"It is simple linear regression in closed form. With the means $\bar x$ and $\bar y$ of the $n$ examples,",
            r"the variance $V = \frac{1}{n} \sum_j (x_j - \bar x)^2$ and the covariance",
            r"$C = \frac{1}{n} \sum_j (x_j - \bar x)(y_j - \bar y)$, the prediction at $u$ is",
            r"\begin{align*}",
            rf"\hat y &= {factor}\Bigl(\bar y + \frac{{C}}{{V}} (u - \bar x)\Bigr)",
            r"\end{align*}",
            *(leverage if recovered.shrunken else ()),
        ),
        numbers=(),
    )
