/* small_cnn: a network of tensorlang, 5 calls of kernels with fixed sizes. */
#ifndef TENSORLANG_SMALL_CNN_H
#define TENSORLANG_SMALL_CNN_H
#include <stdint.h>
#ifndef TL_HOST
#define TL_HOST 1
/* How the tasks of a parallel loop run. parallel_for calls task for index 0 .. count-1, each once, and returns when all
   have returned; count may be less than tasks, and not more. Tasks never wait for one another. */
typedef struct tl_host {
  int32_t abi;     /* TL_HOST */
  int32_t threads; /* the most tasks of a loop, at least 1; 0, where the kernel has a runner: as many as that takes */
  void *user;      /* handed to parallel_for */
  void (*parallel_for)(void *user, int64_t tasks, void (*task)(void *arg, int64_t index, int64_t count), void *arg);
} tl_host;
#if defined(__cplusplus)
#define TL_RESTRICT __restrict
#else
#define TL_RESTRICT restrict
#endif
#endif
#ifdef __cplusplus
extern "C" {
#endif

/* image: float32[1, 3, 32, 32], read
   scores: float32[1, 10], written
   weights: uint8[21312], read
   Arrays are compact, rows one after the other; what is written overlaps nothing else.
   weights is the file small_cnn.weights, whole, in memory at a multiple of 64: read or mapped once,
   for all calls. Each call looks at its first 64 bytes, which hold its size and digest.
   What is large and read once in a call, as weights are, comes fastest from huge pages: on Linux
   madvise(.., MADV_HUGEPAGE) before it is filled, at a multiple of 2 MB.
   Returns 0, or a code:
     -1: no workspace, or one that does not begin at a multiple of 64 bytes
     -2: this CPU has none of the instruction sets that the kernel was compiled for
     -3: a size is negative, or larger than those that the kernel is exact for
     -4: the tl_host is of another ABI than 1, or has a parallel_for and no number of threads
     -5: the weights are missing, not at a multiple of 64 bytes, or not those of this library */
int32_t small_cnn(const float *TL_RESTRICT image, float *TL_RESTRICT scores, const uint8_t *TL_RESTRICT weights);

/* The same in the caller's workspace: this function never allocates. With host == NULL loops run in the calling thread. */
int32_t small_cnn_run(const float *TL_RESTRICT image, float *TL_RESTRICT scores, const uint8_t *TL_RESTRICT weights, void *workspace, const tl_host *host);

/* Bytes of the workspace, which begins at a multiple of 64, for so many threads: the host's, or 0 for
   those of the default runner. With 0 bytes workspace may be NULL; less than 0 is a code. */
int64_t small_cnn_workspace_bytes(int64_t threads);

/* The same with 3 pointers to DLTensors (dlpack.h), which are tested: device, dtype, shape,
   strides, alignment, overlap. A code below -99 says what is wrong with which. */
int32_t small_cnn_dl(const void *const *arrays);

/* What a code means; never NULL. */
const char *small_cnn_message(int32_t code);
/* What the kernel is and what was proven of it, as JSON. */
const char *small_cnn_metadata(void);

#ifdef __cplusplus
}
#endif
#endif
