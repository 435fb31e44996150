"""Decompositions: what is released, in which order, and what is made of it."""
