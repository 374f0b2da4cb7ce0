"""View models: what each page says, as typed plain data made from the index."""
