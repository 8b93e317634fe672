#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "mytorch/cuda.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch_c.h"
#include "mytorch/program.h"
#include "mytorch/tensor_impl.h"

struct mytorch_program {
  mytorch::Program program;
  std::vector<mytorch::Tensor> results;  // of the last run, which the caller may read
};

namespace mytorch {
namespace {

static_assert(sizeof(mytorch_tensor) == sizeof(mt_dltensor) &&
                  offsetof(mytorch_tensor, dtype) == offsetof(mt_dltensor, dtype) &&
                  offsetof(mytorch_tensor, strides) == offsetof(mt_dltensor, strides) &&
                  offsetof(mytorch_tensor, byte_offset) == offsetof(mt_dltensor, byte_offset),
              "the layout is DLPack's");

std::string& last_error() {
  thread_local std::string text;
  return text;
}

// Runs a function of the interface. Returns 0, or -1 with the reason in last_error().
template <class F>
int guarded(const F& f) noexcept {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    try {
      last_error() = error.what();
    } catch (...) {  // no memory for the text
    }
  }
  return -1;
}

constexpr int32_t kMaxDims = 64;

void check_program(const void* program) {
  if (program == nullptr) fail(ErrorCode::kValue, "[c] the program is NULL: see mytorch_load()");
}

// Returns a tensor over the caller's memory.
Tensor tensor_of(const mytorch_tensor& given, const Program::Port& port) {
  if (given.ndim < 0 || given.ndim > kMaxDims || (given.ndim > 0 && given.shape == nullptr)) {
    fail(ErrorCode::kShape, "[c] '", port.name, "' has ndim ", given.ndim,
         given.ndim > 0 && given.ndim <= kMaxDims ? " and no shape" : "");
  }
  if (given.dtype.lanes != 1) {
    fail(ErrorCode::kType, "[c] '", port.name, "' has ", given.dtype.lanes, " lanes: give 1");
  }
  const ScalarType dtype = from_abi({given.dtype.code, given.dtype.bits, given.dtype.lanes});
  const auto ndim = static_cast<size_t>(given.ndim);
  const IntList sizes(given.shape, ndim);
  std::vector<int64_t> strides(ndim);
  if (given.strides != nullptr) {
    strides.assign(given.strides, given.strides + ndim);
  } else {
    contiguous_strides(given.shape, given.ndim, strides.data());
  }
  bool empty = false;
  for (const int64_t size : sizes) empty = empty || size == 0;
  if (given.data == nullptr && !empty) {
    fail(ErrorCode::kValue, "[c] '", port.name, "' has no data");
  }
  const Device device(given.device.type, given.device.index);
  checked_device_slot(device);
  return from_blob(static_cast<void*>(static_cast<char*>(given.data) + given.byte_offset), sizes,
                   strides, TensorOptions().dtype(dtype).device(device));
}

void describe(const Program::Port& port, mytorch_tensor* info) {
  const mt_dtype dtype = to_abi(port.dtype);
  *info = {nullptr,
           {port.device.type, port.device.index},
           static_cast<int32_t>(port.sizes.size()),
           {dtype.code, dtype.bits, 1},
           const_cast<int64_t*>(port.sizes.data()),
           nullptr,
           0};
}

const std::vector<Program::Port>& ports_of(const mytorch_program* program, bool inputs) {
  check_program(program);
  return inputs ? program->program.inputs() : program->program.outputs();
}

const Program::Port& port_at(const mytorch_program* program, bool inputs, int32_t index) {
  const std::vector<Program::Port>& ports = ports_of(program, inputs);
  if (index < 0 || static_cast<size_t>(index) >= ports.size()) {
    fail(ErrorCode::kValue, "[c] the program has ", ports.size(), inputs ? " inputs" : " results",
         ", and no number ", index);
  }
  return ports[static_cast<size_t>(index)];
}

void run(mytorch_program* program, const mytorch_tensor* inputs, mytorch_tensor* outputs) {
  const std::vector<Program::Port>& in = ports_of(program, true);
  const size_t results = ports_of(program, false).size();
  if ((inputs == nullptr && !in.empty()) || (outputs == nullptr && results > 0)) {
    fail(ErrorCode::kValue, "[c] the inputs or the outputs are NULL");
  }
  std::vector<Tensor> given;
  for (size_t i = 0; i < in.size(); ++i) given.push_back(tensor_of(inputs[i], in[i]));
  // Checked before the program has effects.
  const std::vector<Program::Port>& out = program->program.outputs(given);
  std::vector<Tensor> wanted(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (outputs[i].data == nullptr) continue;
    wanted[i] = tensor_of(outputs[i], out[i]);
    if (wanted[i].dtype() != out[i].dtype || !(wanted[i].sizes() == IntList(out[i].sizes))) {
      fail(ErrorCode::kShape, "[c] the memory for result '", out[i].name, "' is ",
           dtype_name(wanted[i].dtype()), " of shape ", shape_str(wanted[i].sizes()),
           ", and the result is ", dtype_name(out[i].dtype), " of shape ", shape_str(out[i].sizes));
    }
  }
  program->results = program->program.run(given);
  const NoGradGuard no_grad;
  for (size_t i = 0; i < out.size(); ++i) {
    const Tensor& result = program->results[i];
    if (!result.defined()) continue;
    if (wanted[i].defined()) {
      wanted[i].copy_(result);
      continue;
    }
    const mt_dltensor& dl = result.impl()->abi.dl;
    outputs[i] = {dl.data,  {dl.device.type, dl.device.index},
                  dl.ndim,  {dl.dtype.code, dl.dtype.bits, dl.dtype.lanes},
                  dl.shape, dl.strides,
                  0};
  }
  for (const Tensor& result : program->results) {
    if (result.defined()) synchronize(result.device());
  }
}

}  // namespace
}  // namespace mytorch

mytorch_program* mytorch_load(const char* path) {
  mytorch_program* program = nullptr;
  mytorch::guarded([&] {
    if (path == nullptr) mytorch::fail(mytorch::ErrorCode::kValue, "[c] the path is NULL");
    program = new mytorch_program{mytorch::load(path), {}};
  });
  return program;
}

void mytorch_free(mytorch_program* program) { delete program; }

int32_t mytorch_num_inputs(const mytorch_program* program) {
  return program == nullptr ? 0 : static_cast<int32_t>(program->program.inputs().size());
}
int32_t mytorch_num_outputs(const mytorch_program* program) {
  return program == nullptr ? 0 : static_cast<int32_t>(program->program.outputs().size());
}

const char* mytorch_input_name(const mytorch_program* program, int32_t index) {
  const char* name = nullptr;
  mytorch::guarded([&] { name = mytorch::port_at(program, true, index).name.c_str(); });
  return name;
}
const char* mytorch_output_name(const mytorch_program* program, int32_t index) {
  const char* name = nullptr;
  mytorch::guarded([&] { name = mytorch::port_at(program, false, index).name.c_str(); });
  return name;
}

int mytorch_input_info(const mytorch_program* program, int32_t index, mytorch_tensor* info) {
  return mytorch::guarded([&] { mytorch::describe(mytorch::port_at(program, true, index), info); });
}
int mytorch_output_info(const mytorch_program* program, int32_t index, mytorch_tensor* info) {
  return mytorch::guarded(
      [&] { mytorch::describe(mytorch::port_at(program, false, index), info); });
}

int mytorch_run(mytorch_program* program, const mytorch_tensor* inputs, mytorch_tensor* outputs) {
  return mytorch::guarded([&] { mytorch::run(program, inputs, outputs); });
}

int mytorch_save(const mytorch_program* program, const char* path) {
  return mytorch::guarded([&] {
    mytorch::check_program(program);
    if (path == nullptr) mytorch::fail(mytorch::ErrorCode::kValue, "[c] the path is NULL");
    program->program.save(path);
  });
}

const char* mytorch_last_error(void) { return mytorch::last_error().c_str(); }
