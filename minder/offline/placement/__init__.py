"""Where a job's machines should be: groups in as few blocks of the network as can be, and spares inside each block."""
