"""Refit in every epoch on one budget: a stream's folder, its releases, and what is made of them."""
