"""What a log says of its searches, for people: figures, and one page that shows them."""
