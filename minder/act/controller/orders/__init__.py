"""What people order, and the work of the job that it must not lose: other code, batches to leave out, a hung job started again."""
