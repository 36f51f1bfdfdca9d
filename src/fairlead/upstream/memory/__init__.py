"""What is remembered of servers from one program to the next: eras and tools."""
