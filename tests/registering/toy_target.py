"""A probe target in one file: half of the input of the token, as something that is surely there."""

from __future__ import annotations

from interp.models.tasks import Target, register_target

register_target(
    Target(
        name="first-coordinate",
        formula="x_1 of the token itself",
        source="the toy",
        expectation="in the query token, at every layer",
        usual=("token",),
        needs=("x", "x_query"),
        value=lambda p, at: (p.x_query if at is None else p.x[:, at])[:, :1],
    )
)
