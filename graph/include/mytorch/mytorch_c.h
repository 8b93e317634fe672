/* Saved programs from C, and from languages that call C. This header needs no other, and libmytorch
 * is all there is to link.
 *
 *   mytorch_program* program = mytorch_load("model.mtg");
 *   if (program == NULL) return puts(mytorch_last_error());
 *   mytorch_tensor x = {.data = pixels, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1},
 *                       .shape = shape};
 *   mytorch_tensor y = {0};
 *   if (mytorch_run(program, &x, &y) != 0) return puts(mytorch_last_error());
 *   const float* scores = y.data;
 *   mytorch_free(program);
 *
 * Functions that can fail return NULL or another number than 0; mytorch_last_error() then says why.
 * One thread at a time may use a program. */
#ifndef MYTORCH_MYTORCH_C_H_
#define MYTORCH_MYTORCH_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The layout of DLPack's DLTensor: a DLTensor* may be cast. Device types are DLPack's: 1 is the
 * CPU, 2 is CUDA. dtype is {code, bits, 1} with the codes 0: integer, 1: unsigned, 2: float, 4:
 * bfloat, 5: complex, 6: bool. */
typedef struct mytorch_tensor {
  void* data;
  struct {
    int32_t type;
    int32_t index;
  } device;
  int32_t ndim;
  struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;     /* in elements; NULL: row-major */
  uint64_t byte_offset; /* from data to the first element */
} mytorch_tensor;

typedef struct mytorch_program mytorch_program;

/* Reads a program that Compiled::save() wrote. Returns NULL on failure. */
mytorch_program* mytorch_load(const char* path);

/* Destroys a program, with the memory of its results. NULL does nothing. */
void mytorch_free(mytorch_program* program);

int32_t mytorch_num_inputs(const mytorch_program* program);
int32_t mytorch_num_outputs(const mytorch_program* program);

/* Return the name of an input or a result, which the program owns; NULL if there is none. */
const char* mytorch_input_name(const mytorch_program* program, int32_t index);
const char* mytorch_output_name(const mytorch_program* program, int32_t index);

/* Fill in the type, shape and device of an input or a result. The program owns the shape; data and
 * strides are NULL. */
int mytorch_input_info(const mytorch_program* program, int32_t index, mytorch_tensor* info);
int mytorch_output_info(const mytorch_program* program, int32_t index, mytorch_tensor* info);

/* Runs a program. `inputs` has the number, types, shapes and devices of its inputs. Results are
 * copied to each of `outputs` whose data is not NULL, which has the type and shape of the result,
 * on any device. Each whose data is NULL receives memory that the program owns until the next run,
 * with its type, shape, strides and device. On a device, results are complete when this returns.
 * The program's effects on the tensors that it keeps last until mytorch_free(). */
int mytorch_run(mytorch_program* program, const mytorch_tensor* inputs, mytorch_tensor* outputs);

/* Writes a program with its present state. */
int mytorch_save(const mytorch_program* program, const char* path);

/* Returns the reason of this thread's last failure; "" if there was none. Valid until the next. */
const char* mytorch_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* MYTORCH_MYTORCH_C_H_ */
