"""Machines that wait to take over: which, how many, whether they are fit, and when a smaller job grows again."""
