"""No server: noise that cancels between peers, and a sum that they agree on among themselves."""
