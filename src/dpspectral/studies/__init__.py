"""Published methods, the paper's tables and figures, ours beside them. Nothing here is a private release."""
