"""Faults that are sown into passes, and who notices them."""
