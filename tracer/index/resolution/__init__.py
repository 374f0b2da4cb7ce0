"""What expressions may be, and so what calls may run: values flow along the program until nothing changes."""
