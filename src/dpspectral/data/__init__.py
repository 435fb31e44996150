"""Rows: where they come from, who a person is, and where they lie."""
