"""Which worker, path and modes a launch command gets, and why: a release's own argument handling, evaluated."""
