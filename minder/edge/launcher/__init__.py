"""The job's own process on a machine: starts, supervises and ends its training workers, and answers the controller."""
