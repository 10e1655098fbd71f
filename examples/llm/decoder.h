/* A decoder of one sequence. Not for two threads at once. */
#ifndef DECODER_H
#define DECODER_H
#include <stdint.h>

enum { DECODER_VOCABULARY = $vocabulary, DECODER_CONTEXT = $context };
enum { DECODER_FULL = -1000 }; /* more tokens than the cache has room for, or none */

typedef struct decoder decoder;

decoder *decoder_open(const char *weights); /* NULL without memory, or for another file than that of the weights */
int decoder_read(decoder *d, const int32_t *tokens, int64_t count, float *logits); /* float[DECODER_VOCABULARY]; 0, or a code */
void decoder_forget(decoder *d); /* begin another text */
void decoder_close(decoder *d);
#endif
