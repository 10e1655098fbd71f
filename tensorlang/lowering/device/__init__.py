"""From loops bound to blocks and threads of a GPU to the code of each thread, and a host program that launches it."""
