"""How the client store behaves at the size of Stack Overflow."""
