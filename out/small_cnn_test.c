/* Runs small_cnn on stored arrays, compares, and times it: cc small_cnn_test.c small_cnn.a -lm && ./a.out
   The first argument is the folder of these files (default: here), the second for how many seconds to time (0.2). */
#include "small_cnn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Memory at a multiple of 64, and where the whole of it begins, just before. */
static void *take(size_t size) {
  char *whole = (char *)malloc(size + 128), *place;
  if (!whole) exit(2);
  place = whole + 128 - (uintptr_t)whole % 64;
  ((void **)place)[-1] = whole;
  return place;
}

static void give(void *place) { free(((void **)place)[-1]); }

static void *read_array(const char *folder, const char *file, size_t size) {
  char path[4096];
  void *data = take(size);
  FILE *from;
  snprintf(path, sizeof path, "%s/%s", folder, file);
  from = fopen(path, "rb");
  if (!from || fread(data, 1, size, from) != size) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(2);
  }
  fclose(from);
  return data;
}


static int wrong; /* elements that are too far off */

static void compare_float32(const char *array, const float *made, const float *wanted, size_t count) {
  size_t k;
  for (k = 0; k < count; ++k) {
    double a = (double)made[k], b = (double)wanted[k];
    if (fabs(a - b) <= 0.0001 * (1 + fabs(b)) || a == b || (isnan(a) && isnan(b))) continue;
    if (wrong++ < 5) fprintf(stderr, "%s[%zu] is %g, expected %g\n", array, k, a, b);
  }
}

int main(int count, char **words) {
  const char *folder = count > 1 ? words[1] : ".";
  double seconds = count > 2 ? atof(words[2]) : 0.2, best = 1e9, spent = 0;
  float *made_image = (float *)read_array(folder, "small_cnn_data/made_image.bin", 12288u);
  float *made_scores = (float *)read_array(folder, "small_cnn_data/made_scores.bin", 40u);
  float *wanted_made_scores = (float *)read_array(folder, "small_cnn_data/wanted_made_scores.bin", 40u);
  uint8_t *made_weights = (uint8_t *)read_array(folder, "small_cnn.weights", 21312u);
  int64_t bytes = small_cnn_workspace_bytes(0);
  void *workspace = take(bytes > 0 ? (size_t)bytes : 0);
  int32_t code = bytes < 0 ? (int32_t)bytes : small_cnn_run(made_image, made_scores, made_weights, workspace, NULL);
  if (code) {
    fprintf(stderr, "small_cnn: %s\n", small_cnn_message(code));
    return 1;
  }
  compare_float32("made_scores", made_scores, wanted_made_scores, 10u);
  if (wrong) {
    fprintf(stderr, "small_cnn: %d elements are wrong\n", wrong);
    return 1;
  }
  while (spent < seconds) {
    long calls = 1, k;
    clock_t start, end;
    double each;
    for (;; calls *= 2) {
      start = clock();
      for (k = 0; k < calls; ++k) small_cnn_run(made_image, made_scores, made_weights, workspace, NULL);
      end = clock();
      if (end - start >= CLOCKS_PER_SEC / 100) break;
    }
    each = (double)(end - start) / CLOCKS_PER_SEC / (double)calls;
    if (each < best) best = each;
    spent += (double)(end - start) / CLOCKS_PER_SEC;
  }
  if (spent > 0) printf("small_cnn: as expected, %.3g us of one CPU a call\n", best * 1e6);
  else printf("small_cnn: as expected\n");
  give(made_image);
  give(made_scores);
  give(wanted_made_scores);
  give(made_weights);
  give(workspace);
  return 0;
}
