"""Existing engines carry the protocols further; each is an extra of its own."""
