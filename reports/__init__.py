"""What people see. Takes results, never models. ``section`` registers a question of one's own."""

from interp.reports.registry import section

__all__ = ["section"]
