"""The service: an HTTP API on the ledger, and scoring of what is sent to it. Imports minder; of minder only the command line imports it."""
