"""What is registered for a test is gone after it."""

from __future__ import annotations

from toys import REGISTRIES, registered


def test_every_registry_has_one_entry_more_and_then_what_it_had() -> None:
    before = [dict(registry) for registry in REGISTRIES]
    with registered():
        inside = [set(registry) - set(old) for registry, old in zip(REGISTRIES, before, strict=True)]
    assert inside == [{"heavy_tails"}, {"centring"}, {"centred-gd"}, {"first-coordinate"}, {"quantiles"}]
    assert [dict(registry) for registry in REGISTRIES] == before
    with registered():  # again, as files that are imported anew
        assert [set(r) - set(old) for r, old in zip(REGISTRIES, before, strict=True)] == inside
