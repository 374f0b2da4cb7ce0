"""``sgltrace whatif``: an off step forced on a real server, to see what strikes."""
