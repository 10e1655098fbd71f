/* generate WEIGHTS COUNT TOKEN...: the likeliest tokens behind a prompt. */
#include <stdio.h>
#include <stdlib.h>

#include "decoder.h"

static float logits[DECODER_VOCABULARY];

int main(int argc, char **argv) {
  if (argc < 4) return fprintf(stderr, "usage: %s WEIGHTS COUNT TOKEN...\n", argv[0]), 2;
  const int prompt = argc - 3;
  int32_t *tokens = malloc((size_t)prompt * sizeof *tokens);
  decoder *d = decoder_open(argv[1]);
  if (d == NULL || tokens == NULL) return fprintf(stderr, "%s: not the weights of this decoder, or no memory\n", argv[1]), 1;
  for (int k = 0; k < prompt; ++k) tokens[k] = (int32_t)strtol(argv[3 + k], NULL, 10);
  int code = decoder_read(d, tokens, prompt, logits);
  for (long left = strtol(argv[2], NULL, 10); code == 0 && left > 0; --left) {
    int32_t best = 0;
    for (int32_t k = 1; k < DECODER_VOCABULARY; ++k)
      if (logits[k] > logits[best]) best = k;
    printf("%d\n", best);
    if (left > 1) code = decoder_read(d, &best, 1, logits);
  }
  if (code) fprintf(stderr, "the decoder stopped with code %d\n", code);
  decoder_close(d);
  free(tokens);
  return code != 0;
}
