"""Tests of a job that stands, replays of it, and tests of what it goes on with."""
