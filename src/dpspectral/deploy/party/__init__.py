"""The party's own process: it owns data, ledger, keys, policy and protocol state, and speaks frames over a socket."""
