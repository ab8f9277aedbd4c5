"""What the controller says of itself and of the job: metrics, and files for the pages."""
