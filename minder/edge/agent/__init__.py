"""The machine agent: exports metrics and signals, captures evidence on request. It changes nothing on its machine."""
