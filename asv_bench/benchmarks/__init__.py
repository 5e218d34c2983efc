"""The suite that ``asv run`` collects. Import nothing here: peers' workers pass through."""
