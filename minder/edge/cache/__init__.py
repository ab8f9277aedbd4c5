"""The checkpoint cache: state of a job's ranks in a machine's memory, held by a process that outlives workers and launcher. No torch."""
