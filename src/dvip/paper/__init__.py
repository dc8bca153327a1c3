"""Every table and figure of the paper as a declared grid, a runner, tables and plots."""
