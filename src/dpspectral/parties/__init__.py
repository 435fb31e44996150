"""Many holders of data and no curator."""
