"""What jobs lost, out of the ledger, and what the next ones need: accounts, standby pools, simulated months (docs/reliability.md)."""
