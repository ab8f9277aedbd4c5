"""What a dry run would have done, whether that was right, and what other settings would do: how a site comes to switch `--act` on."""
