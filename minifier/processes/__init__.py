"""Start, limit, watch and kill the processes that candidates and scripts run in."""
