"""From a night of small runs to one large one: targets, long runs, the launch plan, the money."""
