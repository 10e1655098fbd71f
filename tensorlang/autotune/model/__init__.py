"""How fast a candidate will be: its loop nest as arrays, an estimate, and what is learned beyond it."""
