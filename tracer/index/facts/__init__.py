"""What one module's source says, whatever the others say: a small syntax tree, lines, guards; kept on disk."""
