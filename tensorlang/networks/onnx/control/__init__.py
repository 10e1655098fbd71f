"""Control flow: If, Loop and Scan, with the graphs in them."""
