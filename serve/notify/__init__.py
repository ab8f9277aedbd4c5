"""Verdicts go out: to Alertmanager, to webhooks, to chat rooms. What was sent stands in the ledger; what is not there yet is sent again."""
