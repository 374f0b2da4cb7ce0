"""The off step as a program: what runs in it, what it meets, and what it leaves behind."""
