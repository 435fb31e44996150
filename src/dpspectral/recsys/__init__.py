"""Recommender data and metrics."""
