"""Embedded networks on simple regression: is it the closed form, gradient descent, or something else?"""
