// The engine of this process, the stream of this thread, and the types that the CPU supports.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "mytorch/abi.h"

namespace mytorch::onednn {

const dnnl::engine& engine();
// Returns the stream of the calling thread. On the CPU, execution is complete when the call
// returns.
dnnl_stream_t stream();

// Returns the reason why operands of this type are not supported; NULL if the library multiplies
// them on this CPU.
const char* product_type_reason(mt_dtype dtype);
// Does the same for operations that this backend supports only in float32.
const char* float_type_reason(mt_dtype dtype);

// Returns a description for `mytorch info`.
const char* describe_engine();

}  // namespace mytorch::onednn
