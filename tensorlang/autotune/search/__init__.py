"""Which candidates to measure next: sketches with open decisions, and the search over them."""
