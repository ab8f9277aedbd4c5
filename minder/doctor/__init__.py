"""What a site's set-up lacks, and how to mend it; a first job.toml out of a Prometheus that was there before us (docs/first-contact.md)."""
