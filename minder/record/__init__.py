"""What is remembered: ledger, store, registry of models, API schemas, client."""
