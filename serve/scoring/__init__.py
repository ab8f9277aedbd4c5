"""Uploads, and what is concluded from them. What a stranger sent is parsed in a process that has no ledger, no tokens, and limits."""
