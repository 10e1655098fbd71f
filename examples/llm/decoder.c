/* A decoder without Python: weights of one file, kernels of tensorlang, and the loop over layers that was written for them. */
#include "decoder.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

$includes

enum { LAYERS = $layers, WIDTH = $width, HIDDEN = $hidden, GROUPS = $groups, DEPTH = $depth, PIECE = $piece };
enum { CONTEXT = DECODER_CONTEXT, VOCABULARY = DECODER_VOCABULARY };
static const size_t WEIGHTS = $bytes;
static const size_t CACHE = (size_t)GROUPS * CONTEXT * DEPTH; /* elements of the keys, and of the values, of a layer */

struct decoder {
  uint8_t *weights;
  uint16_t *keys, *values; /* of all layers: [LAYERS, GROUPS, CONTEXT, DEPTH] in float16 */
  float *rows, *behind, *heads, *hidden, *queries;
  uint16_t *new_keys, *new_values; /* [GROUPS, n, DEPTH] */
  int32_t tokens[PIECE], positions[PIECE], lengths[1];
  int32_t length; /* tokens in the cache */
};

/* Zeros at a multiple of 2 MB, in huge pages where the system has them: what is read once a token comes faster so. */
static void *memory(size_t bytes) {
  const size_t page = (size_t)1 << 21, whole = (bytes + page - 1) / page * page;
  void *made = aligned_alloc(page, whole);
  if (made == NULL) return NULL;
#ifdef MADV_HUGEPAGE
  madvise(made, whole, MADV_HUGEPAGE);
#endif
  return memset(made, 0, whole);
}

static int read_weights(decoder *d, const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return 0;
  const int whole = fread(d->weights, 1, WEIGHTS, file) == WEIGHTS && fgetc(file) == EOF;
  fclose(file);
  return whole;
}

decoder *decoder_open(const char *path) {
  decoder *d = calloc(1, sizeof *d);
  if (d == NULL) return NULL;
  const size_t rows = (size_t)PIECE * WIDTH * sizeof(float), halves = (size_t)PIECE * GROUPS * DEPTH * sizeof(uint16_t);
  const int made = (d->weights = memory(WEIGHTS)) && (d->keys = memory(LAYERS * CACHE * sizeof(uint16_t))) &&
                   (d->values = memory(LAYERS * CACHE * sizeof(uint16_t))) && (d->rows = memory(rows)) &&
                   (d->behind = memory(rows)) && (d->heads = memory(rows)) && (d->queries = memory(rows)) &&
                   (d->hidden = memory((size_t)PIECE * HIDDEN * sizeof(float))) && (d->new_keys = memory(halves)) &&
                   (d->new_values = memory(halves));
  if (made && read_weights(d, path)) return d;
  decoder_close(d);
  return NULL;
}

void decoder_close(decoder *d) {
  if (d == NULL) return;
  void *const held[] = {d->weights, d->keys,   d->values,  d->rows,     d->behind,
                        d->heads,   d->hidden, d->queries, d->new_keys, d->new_values};
  for (size_t k = 0; k < sizeof held / sizeof *held; ++k) free(held[k]);
  free(d);
}

void decoder_forget(decoder *d) { d->length = 0; }

/* Put the first `count` of n new keys and values behind those of a layer. */
static void keep(decoder *d, int layer, int n, int count) {
  for (int group = 0; group < GROUPS; ++group) {
    const size_t there = layer * CACHE + ((size_t)group * CONTEXT + d->length) * DEPTH, here = (size_t)group * n * DEPTH;
    memcpy(d->keys + there, d->new_keys + here, (size_t)count * DEPTH * sizeof(uint16_t));
    memcpy(d->values + there, d->new_values + here, (size_t)count * DEPTH * sizeof(uint16_t));
  }
}

/* Tokens, positions and lengths of a step of n rows; rows behind `count` only fill it up. Returns the most keys. */
static int begin(decoder *d, const int32_t *tokens, int n, int count) {
  for (int k = 0; k < n; ++k) {
    d->tokens[k] = k < count ? tokens[k] : 0;
    d->positions[k] = d->length + k;
  }
  return d->lengths[0] = d->length + n;
}

#define CALL(call) do { const int32_t code = (call); if (code) return code; } while (0)

$steps
int decoder_read(decoder *d, const int32_t *tokens, int64_t count, float *logits) {
  if (count < 1 || count > CONTEXT - d->length) return DECODER_FULL;
  while (count > 0) {
    /* Where no whole piece fits behind the sequence any more, one token follows the other. */
    const int some = d->length + PIECE > CONTEXT ? 1 : count < PIECE ? (int)count : PIECE;
    const int code = some == 1 ? step_1(d, tokens, 1, logits) : step_$piece(d, tokens, some, logits);
    if (code) return code;
    d->length += some, tokens += some, count -= some;
  }
  return 0;
}
