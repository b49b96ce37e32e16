"""Estimates with honest uncertainty: least squares, Levenberg-Marquardt, bootstrap intervals, robust means."""
