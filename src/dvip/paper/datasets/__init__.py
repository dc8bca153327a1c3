"""Named datasets: where they are looked for, how they are fetched, read and split."""
