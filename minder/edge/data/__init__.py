"""Data that resumes exactly: which samples a rank trains on at which step, and processes that load them and may die."""
