/* Loads a saved program and runs it, in C11: prints its inputs and results, fills the inputs with
 * ones, and prints the first elements of each result. It knows nothing of the model. */
#include <stdio.h>
#include <stdlib.h>

#include "mytorch/mytorch_c.h"

enum { kInteger = 0, kUnsigned = 1, kFloat = 2, kBool = 6 }; /* DLPack's codes */

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, mytorch_last_error());
  return 1;
}

static int64_t count(const mytorch_tensor* tensor) {
  int64_t n = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) n *= tensor->shape[d];
  return n;
}

static void print_type(const char* name, const mytorch_tensor* tensor) {
  printf("%s: %s%d (", name,
         tensor->dtype.code == kFloat ? "float" : tensor->dtype.code == kInteger ? "int" : "type",
         tensor->dtype.bits);
  for (int32_t d = 0; d < tensor->ndim; ++d) {
    printf("%s%lld", d == 0 ? "" : ", ", (long long)tensor->shape[d]);
  }
  printf(")\n");
}

/* Returns the memory of an input full of ones, or NULL. */
static void* ones(const mytorch_tensor* tensor) {
  const int64_t n = count(tensor);
  const size_t size = tensor->dtype.bits / 8;
  char* data = (char*)calloc((size_t)(n > 0 ? n : 1), size);
  for (int64_t i = 0; data != NULL && i < n; ++i) {
    if (tensor->dtype.code == kFloat && size == sizeof(float)) ((float*)data)[i] = 1;
    if (tensor->dtype.code == kFloat && size == sizeof(double)) ((double*)data)[i] = 1;
    if (tensor->dtype.code != kFloat) data[(size_t)i * size] = 1; /* little-endian */
  }
  return data;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: program_c MODEL.mtg\n");
    return 1;
  }
  mytorch_program* program = mytorch_load(argv[1]);
  if (program == NULL) return fail("load");
  const int32_t num_inputs = mytorch_num_inputs(program);
  const int32_t num_outputs = mytorch_num_outputs(program);
  mytorch_tensor* inputs = (mytorch_tensor*)calloc((size_t)num_inputs + 1, sizeof(*inputs));
  mytorch_tensor* outputs = (mytorch_tensor*)calloc((size_t)num_outputs + 1, sizeof(*outputs));
  if (inputs == NULL || outputs == NULL) return fail("memory");
  for (int32_t i = 0; i < num_inputs; ++i) {
    if (mytorch_input_info(program, i, &inputs[i]) != 0) return fail("input");
    print_type(mytorch_input_name(program, i), &inputs[i]);
    inputs[i].data = ones(&inputs[i]);
  }
  /* Results without memory of ours are the program's. */
  if (mytorch_run(program, inputs, outputs) != 0) return fail("run");
  for (int32_t i = 0; i < num_outputs; ++i) {
    print_type(mytorch_output_name(program, i), &outputs[i]);
    const int first_is_float = outputs[i].dtype.code == kFloat && outputs[i].dtype.bits == 32;
    if (first_is_float && count(&outputs[i]) > 0) {
      printf("  first element %g\n", ((const float*)outputs[i].data)[0]);
    }
  }
  for (int32_t i = 0; i < num_inputs; ++i) free(inputs[i].data);
  free(inputs);
  free(outputs);
  mytorch_free(program);
  return 0;
}
