"""A question in one file, its answer a section with a figure: how large are the errors?"""

from __future__ import annotations

import torch

from interp.evidence.question import question
from interp.identify.choose import Choice
from interp.identify.run import Run
from interp.results import Figure, Panel, Section, Table


@question("quantiles")
def quantiles(choice: Choice, run: Run) -> Section:
    error = run.task.errors(run.network.held_out.prediction, run.network.held_out.drawn).flatten()
    share = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    sizes = torch.quantile(error, share).tolist()
    rows = tuple((f"{q:g}", f"{size:.6g}") for q, size in zip(share.tolist(), sizes, strict=True))
    finding = "Nine errors in ten are below the last of these"
    plot = Panel(
        name="quantiles-plot",
        title="",
        data=[{"type": "scatter", "x": share.tolist(), "y": sizes, "mode": "lines+markers"}],
        layout={"xaxis": {"title": {"text": "share"}}, "yaxis": {"title": {"text": "squared error"}}},
        height=240,
    )
    table = Table(header=("share", "squared error"), rows=rows)
    figure = Figure(
        name="quantiles", finding=finding, description="Quantiles of errors.", panels=(plot,), legend=(), table=table
    )
    return Section(name="quantiles", title="How large are single errors?", finding=finding, figure=figure, table=table)
