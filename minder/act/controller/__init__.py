"""The one place where stages meet: `Controller.step(now)` runs them in order, and only it writes to the ledger."""
