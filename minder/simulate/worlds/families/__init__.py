"""One module for each family; none imports another, and none imports a detector."""
