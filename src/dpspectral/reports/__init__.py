"""Plain-language reports: what was done, and what it reveals about one person."""
