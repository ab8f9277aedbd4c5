"""The endpoints, a file for each kind of thing. Reads are for viewers, actions for operators."""
