"""The commands of `sgltrace`, a module each; `sgltrace.cli` wires them together."""
